"""The read-only view of models and bundles, and what workers have taken up of them (contract J)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

from engines.protocol.catalog import Bundle, BundleConflict, ModelEntry
from generated.sie import models
from generated.sie.interfaces import Context

from .errors import Failure, ModelNotFound
from .pending import snapshot
from .surface import Surface

SOURCE: Final = "gateway-registry"
YAML: Final = "application/x-yaml"
_STATUS: Final = "/status"


class ConfigSurface(Surface):
    """``/v1/configs/models``, ``/v1/configs/bundles`` and ``/v1/configs/resolve``."""

    async def get_model_configs(self, context: Context) -> models.ConfigModelsResponse:
        """All models of the catalog, sorted by name."""
        return models.ConfigModelsResponse(
            models=[
                models.ConfigModelSummary(model_id=entry.name, profiles=sorted(entry.profiles), source=SOURCE)
                for entry in self.services.catalog.models()
            ]
        )

    async def get_model_config_or_status(self, context: Context, id: str) -> bytes:
        """One model as YAML. The generated route hands ids with the tail ``/status`` to the other operation.

        Raises:
            ModelNotFound: no such model.
        """
        entry = self._model(id)
        document = models.ConfigModelDocument(sie_id=entry.name, source=SOURCE, bundles=list(entry.bundles))
        return _yaml(context, document)

    async def get_model_config_status(self, context: Context, id: str) -> models.ModelConfigStatusResponse | bytes:
        """Which workers run the model's configuration as this gateway knows it, bundle by bundle.

        The tail ``/status`` means this only if what is before it is a model; else it is part of a name.

        Raises:
            ModelNotFound: no such model.
        """
        entry = self._find(id)
        if entry is None:
            return await self.get_model_config_or_status(context, id + _STATUS)
        bundles = [self._acknowledged(bundle) for bundle in entry.bundles]
        return models.ModelConfigStatusResponse(
            model_id=entry.name,
            config_epoch=self.services.catalog.epoch,
            bundles=bundles,
            all_bundles_acked=bool(bundles) and all(bundle.acked for bundle in bundles),
            no_bundles=not bundles,
            source=SOURCE,
            pending_generation=snapshot(self.services.cluster, entry.name),
        )

    async def get_bundle_configs(self, context: Context) -> models.BundleConfigsResponse:
        """All bundles, best priority first, then by name."""
        workers = [worker.bundle for worker in self.services.cluster.workers() if worker.healthy]
        bundles = sorted(self.services.catalog.bundles(), key=lambda bundle: (bundle.priority, bundle.name))
        return models.BundleConfigsResponse(
            bundles=[
                models.BundleConfigSummary(
                    bundle_id=bundle.name,
                    engine=bundle.engine,
                    priority=bundle.priority,
                    adapter_count=len(bundle.adapters),
                    source=bundle.source,
                    connected_workers=workers.count(bundle.name),
                )
                for bundle in bundles
            ]
        )

    async def get_bundle_config(self, context: Context, id: str) -> bytes:
        """One bundle as YAML.

        Raises:
            Failure: 404 ``BUNDLE_NOT_FOUND``.
        """
        bundle = self._bundle(id)
        if bundle is None:
            raise Failure(404, "invalid_request", f"Bundle '{id}' not found", native="BUNDLE_NOT_FOUND")
        document = models.BundleConfigDocument(
            name=bundle.name,
            engine=bundle.engine,
            priority=bundle.priority,
            source=bundle.source,
            adapters=list(bundle.adapters),
        )
        return _yaml(context, document)

    async def resolve_config(self, context: Context, body: models.ResolveRequest) -> models.ResolveConfigResponse:
        """The bundle that would run a model. A ``bundle:/`` in front of the model beats ``bundle``.

        Raises:
            Failure: 404 for an unknown model, 409 for a bundle that is unknown or cannot run it.
        """
        override, separator, name = body.model.partition(":/")
        if not (separator and override and name):
            given = body.bundle if isinstance(body.bundle, str) else None
            override, name = given or "", body.model
        entry = self._find(name)
        if entry is None or not entry.bundles:
            raise Failure(
                404,
                "model_not_found",
                f"Model '{name}' not found",
                native="MODEL_NOT_FOUND",
                details={"model": name},
            )
        bundle = self._bundle(override) if override else None
        if override and (bundle is None or bundle.name not in entry.bundles):
            raise Failure(
                409,
                "invalid_request",
                f"Bundle '{override}' cannot run model '{entry.name}'",
                native="BUNDLE_ROUTING_CONFLICT",
                details={"model": entry.name, "bundle": override, "compatible_bundles": list(entry.bundles)},
            )
        return models.ResolveConfigResponse(
            model=entry.name,
            resolved_bundle=self.services.catalog.resolve(name).bundle if bundle is None else bundle.name,
            compatible_bundles=list(entry.bundles),
            profiles=sorted(entry.profiles),
        )

    def _acknowledged(self, bundle: str) -> models.ModelAckBundleStatus:
        """Only healthy workers of exactly this bundle count."""
        expected = self.services.catalog.bundle_config_hash(bundle)
        eligible = [worker for worker in self.services.cluster.workers() if worker.healthy and worker.bundle == bundle]
        acked = [worker.name for worker in eligible if worker.bundle_config_hash == expected]
        pending = [worker.name for worker in eligible if worker.bundle_config_hash != expected]
        return models.ModelAckBundleStatus(
            bundle_id=bundle,
            expected_bundle_config_hash=expected,
            total_eligible_workers=len(eligible),
            acked_workers=acked,
            pending_workers=pending,
            acked=bool(acked) and not pending,
        )

    def _model(self, id: str) -> ModelEntry:
        entry = self._find(id)
        if entry is None:
            raise ModelNotFound(id, f"Model '{id}' not found")
        return entry

    def _find(self, name: str) -> ModelEntry | None:
        try:
            return self.services.catalog.resolve(name).model
        except BundleConflict:
            # known, and no bundle runs it
            base = name.rpartition(":/")[2].lower()
            names = {base, base.replace("__", "/")}
            return next((entry for entry in self.services.catalog.models() if entry.name.lower() in names), None)
        except LookupError:
            return None

    def _bundle(self, name: str) -> Bundle | None:
        return next((one for one in self.services.catalog.bundles() if one.name.lower() == name.lower()), None)


def _yaml(context: Context, document: msgspec.Struct) -> bytes:
    context.media_type = YAML
    fields: dict[str, Any] = msgspec.to_builtins(document)
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    return text.encode()
