"""Engines that die: the first time a new one is loaded at once, soon after each other with pauses between."""

from __future__ import annotations

import pytest

from engines.worker import models
from engines.worker.slot import LoadFailed

from .house import House


class Clock:
    """Stands in for the time of the loads."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(models, "time", made)
    return made


async def die(house: House) -> None:
    """A request that its engine does not survive."""
    made = house.entries["a"]
    async with house.models.use(made, made.profiles["default"]) as engine:
        house.models.discard(made, made.profiles["default"], engine)


async def test_an_engine_that_dies_again_and_again_is_loaded_with_growing_pauses(clock: Clock) -> None:
    house = House(1000, {"a": 100})
    for _ in range(models.AT_ONCE + 1):
        await die(house)
    for pause in (1.0, 2.0, 4.0):
        with pytest.raises(LoadFailed, match="in a row") as failed:
            await house.ask("a")
        assert not failed.value.permanent
        assert [status.state for status in house.models.statuses()] == ["failed"]
        clock.now += pause - 0.1
        with pytest.raises(LoadFailed):
            await house.ask("a")
        clock.now += 0.2
        await die(house)
    assert house.loads == ["a"] * 6


async def test_an_engine_that_has_lived_for_a_while_is_replaced_at_once(clock: Clock) -> None:
    house = House(1000, {"a": 100})
    for _ in range(4):
        await house.ask("a")
        clock.now += models.SHORT_LIFE + 1
        await die(house)
    assert await house.ask("a") == "a"
