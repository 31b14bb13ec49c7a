"""The list of models, for OpenAI clients and for the SDK of the origin (contract H)."""

from __future__ import annotations

from typing import Final

from engines.protocol.catalog import ModelEntry, Profile
from generated.sie import models
from generated.sie.interfaces import Context

from . import pending
from .errors import ModelNotFound
from .surface import Surface

CREATED: Final = 1_700_000_000
OWNER: Final = "sie"
_DEFAULT: Final = "default"


class ModelsSurface(Surface):
    """``/v1/models`` and ``/v1/models/{model}``."""

    async def get_models(self, context: Context) -> models.ModelsResponse:
        """All models, sorted by name. A profile other than the default one is an entry of its own."""
        infos = self._infos()
        listed = [infos[name] for name in sorted(infos)]
        return models.ModelsResponse(
            object="list",
            data=[
                models.OpenAiModelObject(id=info.name, object="model", created=CREATED, owned_by=OWNER)
                for info in listed
            ],
            models=listed,
        )

    async def get_model(self, context: Context, model: str) -> models.ModelInfoWire:
        """One model, by any name that requests may use, and by any that is listed.

        Raises:
            ModelNotFound: no such model or profile.
        """
        try:
            found = self.services.catalog.resolve(model)
        except LookupError:
            # no bundle runs it, or only a worker knows it
            name = model.lower().replace("__", "/")
            listed = next((info for key, info in self._infos().items() if key.lower() == name), None)
            if listed is None:
                raise ModelNotFound(model, f"Model '{model}' not found") from None
            info = listed
        else:
            profile = None if found.profile.name == _default(found.model) else found.profile
            info = self._info(found.model, profile)
        info.id, info.object, info.created, info.owned_by = info.name, "model", CREATED, OWNER
        return info

    def _infos(self) -> dict[str, models.ModelInfoWire]:
        """All that are listed, by name."""
        infos: dict[str, models.ModelInfoWire] = {}
        for entry in self.services.catalog.models():
            infos[entry.name] = self._info(entry, None)
            for profile in entry.profiles.values():
                if profile.name != _default(entry):
                    name = f"{entry.name}:{profile.name}"
                    infos[name] = self._info(entry, profile)
        for worker in self.services.cluster.workers():
            for status in worker.models:
                if status.state == "loaded" and worker.healthy and status.name not in infos:
                    infos[status.name] = _unlisted(status.name)
        return infos

    def _info(self, entry: ModelEntry, profile: Profile | None) -> models.ModelInfoWire:
        """``entry`` on the wire; with ``profile`` as the variant that it is."""
        name = entry.name if profile is None else f"{entry.name}:{profile.name}"
        status = self.services.cluster.model_status(name)
        default = _default(entry)
        return models.ModelInfoWire(
            name=name,
            inputs=list(entry.inputs),
            outputs=list(entry.outputs),
            dims=dict(entry.dims),
            loaded=status.state == "loaded",
            state=status.state,
            last_error=status.last_error,
            max_sequence_length=entry.max_sequence_length,
            revision=entry.revision,
            profiles={p: models.ProfileInfoWire(is_default=p == default) for p in entry.profiles},
            capabilities=_capabilities(entry),
            pending_generation=pending.snapshot(self.services.cluster, entry.name),
        )


def _default(entry: ModelEntry) -> str:
    return _DEFAULT if _DEFAULT in entry.profiles else next(iter(entry.profiles), _DEFAULT)


def _capabilities(entry: ModelEntry) -> models.ModelCapabilitiesWire:
    adapters = {name: sorted(profile.lora_paths) for name, profile in entry.profiles.items() if profile.lora_paths}
    generation = entry.generation
    return models.ModelCapabilitiesWire(
        lora_adapters=sorted({name for names in adapters.values() for name in names}) or None,
        profile_lora_adapters=adapters or None,
        grammar=None if generation is None else list(generation.grammar) or None,
        tools=None if generation is None else generation.tools,
        code=generation is not None and generation.code,
        sql=generation is not None and generation.sql,
        guard=generation is not None and generation.guard,
    )


def _unlisted(name: str) -> models.ModelInfoWire:
    """A model that a worker serves and this gateway's catalog does not have."""
    return models.ModelInfoWire(name=name, inputs=[], outputs=[], dims={}, loaded=True, state="loaded", profiles={})
