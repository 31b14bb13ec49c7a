"""A worker's models with engines that only take memory, and a record of who took how much of it when."""

from __future__ import annotations

import asyncio

from engines.adapters.base import Engine, EngineLoadError, EngineStatus
from engines.protocol.catalog import ModelEntry, Profile
from engines.worker.models import Models


class House:
    """``sizes`` are the bytes that each model really takes, from the begin of its load until it is closed."""

    def __init__(self, budget: int, sizes: dict[str, int], footprints: dict[str, int] | None = None) -> None:
        self.sizes = sizes
        self.entries = {name: entry(name, (footprints or {}).get(name, 0)) for name in sizes}
        self.models = Models(self.make, lambda: None, budget)
        self.inside: list[str] = []
        self.loads: list[str] = []
        self.most = 0
        self.broken: set[str] = set()
        self.doors: dict[str, asyncio.Event] = {}
        """A model whose name is here is loaded, and closed, when its event is set."""

    def make(self, made: ModelEntry, profile: Profile) -> Engine:
        return Tenant(self, made.name)  # type: ignore[return-value]

    @property
    def loaded(self) -> list[str]:
        """Names of the loaded models, sorted."""
        return [status.name for status in self.models.statuses() if status.state == "loaded"]

    def enter(self, name: str) -> None:
        self.loads.append(name)
        self.inside.append(name)
        self.most = max(self.most, sum(self.sizes[one] for one in self.inside))

    async def door(self, name: str) -> None:
        await asyncio.sleep(0)
        if name in self.doors:
            await self.doors[name].wait()

    async def ask(self, name: str, until: asyncio.Event | None = None) -> str:
        """One request, which has the engine until the event is set; answers with the model's name."""
        made = self.entries[name]
        async with self.models.use(made, made.profiles["default"]) as engine:
            assert isinstance(engine, Tenant)
            for _ in range(3):
                assert name in self.inside, "an engine in use is not closed"
                await asyncio.sleep(0)
            if until is not None:
                await until.wait()
            assert name in self.inside, "an engine in use is not closed"
            return engine.name

    async def preload(self, *names: str) -> None:
        for name in names:
            await self.models.load(self.entries[name], self.entries[name].profiles["default"])


class Tenant:
    def __init__(self, house: House, name: str) -> None:
        self.house = house
        self.name = name

    async def load(self) -> None:
        self.house.enter(self.name)
        await self.house.door(self.name)
        if self.name in self.house.broken:
            raise EngineLoadError("it is broken", error_class="Broken", permanent=True)

    async def close(self) -> None:
        await self.house.door(self.name)
        self.house.inside.remove(self.name)

    def status(self) -> EngineStatus:
        return EngineStatus(memory_bytes=self.house.sizes[self.name])


def entry(name: str, footprint: int = 0, source: str = "nowhere") -> ModelEntry:
    loadtime = {"memory_footprint_bytes": footprint} if footprint else {}
    profile = Profile(
        name="default", engine="sentence_transformer", adapter_path="fake", source=source, loadtime=loadtime
    )
    return ModelEntry(name=name, profiles={"default": profile})


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(3):
        await asyncio.sleep(0.02)
