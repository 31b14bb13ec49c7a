"""The catalog of one process: models, bundles and aliases, and the way from a model argument to a profile."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engines.protocol.catalog import (
    Bundle,
    BundleConflict,
    ModelEntry,
    Profile,
    Resolved,
    UnknownBundle,
    UnknownModel,
    UnknownProfile,
)

from . import models as model_files
from .adapters import Unservable, known_modules, module_of
from .fields import BUNDLE, MODEL
from .reading import CatalogError, Problem, read

log = logging.getLogger("sie.catalog")

EMBEDDED = Path(__file__).with_name("embedded")
ALIASES = {
    "code": "Qwen/Qwen3-4B-Instruct-2507",
    "sql": "Qwen/Qwen3-4B-Instruct-2507",
    "guard": "ibm-granite/granite-guardian-3.0-2b",
}
"""Names that the contract defines (section H.4); a target that the catalog lacks makes the alias unknown too."""


class Refused(msgspec.Struct, frozen=True):
    """A model that is in a file and not in the catalog: why, and whether the file itself is at fault."""

    name: str
    file: str
    reason: str
    malformed: bool


class Catalog:
    """``CatalogView`` over the embedded files and an operator's own."""

    def __init__(
        self,
        models: Sequence[ModelEntry],
        bundles: Sequence[Bundle],
        aliases: Mapping[str, str] | None = None,
        refused: Sequence[Refused] = (),
    ) -> None:
        self._bundles = {bundle.name.lower(): bundle for bundle in bundles}
        self._models: dict[str, ModelEntry] = {}
        for entry in models:
            self._models[entry.name.lower()] = msgspec.structs.replace(entry, bundles=self._compatible(entry))
        self._aliases = {name.lower(): target for name, target in {**ALIASES, **(aliases or {})}.items()}
        self._refused = {one.name.lower(): one for one in refused}
        self._identities: dict[tuple[str, str], str] = {}
        self._hashes: dict[str, str] = {}
        self._epoch = 0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Catalog:
        """The embedded catalog, ``SIE_MODELS_DIR``, ``SIE_BUNDLES_DIR`` and ``SIE_GATEWAY_MODEL_ALIASES``.

        A model whose file is malformed, or that nothing here can serve, is left out with its reason logged and kept
        in ``refused``; with ``SIE_CATALOG_STRICT=1`` a malformed file refuses the start.

        Raises:
            CatalogError: a directory, a bundle file or the aliases cannot be used, or a model file when strict.
        """
        model_dirs = [EMBEDDED / "models", *_directories(environ, "SIE_MODELS_DIR")]
        bundle_dirs = [EMBEDDED / "bundles", *_directories(environ, "SIE_BUNDLES_DIR")]
        strict = environ.get("SIE_CATALOG_STRICT", "").strip().lower() in {"1", "true", "yes", "on"}
        return load(model_dirs, bundle_dirs, aliases=_aliases(environ), strict=strict)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def refused(self) -> Sequence[Refused]:
        """What the files name and this catalog does not serve."""
        return sorted(self._refused.values(), key=lambda one: one.name)

    def take(self, other: Catalog) -> None:
        """Become ``other``, one epoch later."""
        self._bundles, self._models = other._bundles, other._models
        self._aliases, self._refused = other._aliases, other._refused
        self._identities, self._hashes = {}, {}
        self._epoch += 1

    def models(self) -> Sequence[ModelEntry]:
        return sorted(self._models.values(), key=lambda entry: entry.name)

    def bundles(self) -> Sequence[Bundle]:
        return sorted(self._bundles.values(), key=lambda bundle: bundle.name)

    def resolve(self, model: str) -> Resolved:
        """See ``CatalogView.resolve``."""
        pinned, name = _split_bundle(model)
        entry, profile = self._find(name)
        if entry is None:
            target = self._aliases.get(name.lower())
            base, _, wanted = name.rpartition(":")
            if target is None and base:
                target, profile = self._aliases.get(base.lower()), wanted
            if target is not None:
                # the caller's own bundle and profile win over those of the alias
                inner, target = _split_bundle(target)
                pinned = pinned or inner
                entry, inner_profile = self._find(target)
                profile = profile or inner_profile
        if entry is None:
            raise UnknownModel(self._unknown(name))
        return Resolved(entry, self._profile(entry, profile), self._bundle(entry, pinned))

    def bundle_config_hash(self, bundle: str) -> str:
        """SHA-256 (64 hex digits) of what a bundle's workers run: the canonical form of contract section J."""
        key = bundle.lower()
        if key not in self._hashes:
            rows = [_row(entry) for entry in self.models() if bundle in entry.bundles]
            self._hashes[key] = _digest(rows)
        return self._hashes[key]

    def execution_identity(self, resolved: Resolved) -> str:
        """SHA-256 (64 hex digits) of the model, its revision, and the profile that runs it."""
        key = (resolved.model.name, resolved.profile.name)
        if key not in self._identities:
            row = {"model": resolved.model.name, "revision": resolved.model.revision, "source": resolved.profile.source}
            row["engine"] = resolved.profile.engine
            self._identities[key] = _digest({**row, "profile": _config(resolved.profile)})
        return self._identities[key]

    def _find(self, name: str) -> tuple[ModelEntry | None, str]:
        """The entry and the profile (empty: the default) that ``name`` spells, without aliases."""
        base, _, profile = name.rpartition(":")
        for spelling, wanted in ((name, ""), (base, profile)):
            if spelling:
                key = spelling.lower()
                entry = self._models.get(key) or self._models.get(key.replace("__", "/"))
                if entry is not None:
                    return entry, wanted
        return None, ""

    def _profile(self, entry: ModelEntry, wanted: str) -> Profile:
        if not wanted:
            return entry.profiles["default"]
        for name, profile in entry.profiles.items():
            if name.lower() == wanted.lower():
                return profile
        known = ", ".join(sorted(entry.profiles))
        refused = self._refused.get(f"{entry.name}:{wanted}".lower())
        if refused is not None:
            raise UnknownProfile(f"Profile '{wanted}' of model '{entry.name}' cannot be served: {refused.reason}")
        raise UnknownProfile(f"Model '{entry.name}' has no profile '{wanted}' (it has: {known})")

    def _bundle(self, entry: ModelEntry, pinned: str) -> str:
        if not pinned:
            if not entry.bundles:
                raise BundleConflict(f"No bundle can run model '{entry.name}'", ())
            return entry.bundles[0]
        bundle = self._bundles.get(pinned.lower())
        if bundle is None:
            raise UnknownBundle(f"Bundle '{pinned}' not found")
        if bundle.name not in entry.bundles:
            message = f"Bundle '{bundle.name}' cannot run model '{entry.name}'"
            raise BundleConflict(message, entry.bundles)
        return bundle.name

    def _compatible(self, entry: ModelEntry) -> tuple[str, ...]:
        """Bundles with an adapter of one of the model's profiles, best priority first, then by name."""
        modules = {module_of(profile.adapter_path) for profile in entry.profiles.values()}
        fit = [bundle for bundle in self._bundles.values() if modules.intersection(bundle.adapters)]
        return tuple(bundle.name for bundle in sorted(fit, key=lambda bundle: (bundle.priority, bundle.name)))

    def _unknown(self, name: str) -> str:
        for spelling in (name, name.rpartition(":")[0]):
            refused = self._refused.get(spelling.lower()) or self._refused.get(spelling.lower().replace("__", "/"))
            if refused is not None:
                return f"Model '{name}' is in the catalog files and cannot be served: {refused.reason}"
        return f"Model '{name}' not found"


def load(
    model_dirs: Sequence[Path], bundle_dirs: Sequence[Path], *, aliases: Mapping[str, str] | None = None, strict: bool
) -> Catalog:
    """Read directories of ``*.yaml`` and ``*.yml`` files; a later directory's model or bundle replaces an earlier one.

    Raises:
        CatalogError: a bundle file is malformed, or any file when ``strict``.
    """
    problems: list[Problem] = []
    bundles: dict[str, Bundle] = {}
    for directory in bundle_dirs:
        for path in _files(directory):
            try:
                bundle = _read_bundle(path, "embedded" if EMBEDDED in path.parents else "filesystem")
                bundles[bundle.name.lower()] = bundle
            except CatalogError as error:
                problems += error.problems
    if problems:
        raise CatalogError(problems)
    models: dict[str, ModelEntry] = {}
    refused: dict[str, Refused] = {}
    for directory in model_dirs:
        for path in _files(directory):
            entry, left_out = _read_model(path, problems)
            name = entry.name if entry is not None else left_out[0].name
            models.pop(name.lower(), None)
            for key in [key for key in refused if key.partition(":")[0] == name.lower()]:
                del refused[key]
            if entry is not None:
                models[name.lower()] = entry
            for one in left_out:
                refused[one.name.lower()] = one
                _tell(one, EMBEDDED in path.parents)
    if problems and strict:
        raise CatalogError(problems)
    return Catalog(list(models.values()), list(bundles.values()), aliases, list(refused.values()))


def _tell(refused: Refused, embedded: bool) -> None:
    """An operator hears of each own file that is left out; what this version embeds and cannot serve yet is no news."""
    level = logging.ERROR if refused.malformed else logging.DEBUG if embedded else logging.WARNING
    log.log(level, "model %s: %s", refused.name, refused.reason)


def _read_model(path: Path, problems: list[Problem]) -> tuple[ModelEntry | None, list[Refused]]:
    """The entry of a file, and what of it is refused: the model, or some of its profiles as ``model:profile``."""
    name = path.stem.replace("__", "/")
    try:
        values, lines = read(path, MODEL)
        name = values.get("sie_id", name)
        entry, profiles = model_files.build(values, lines)
    except CatalogError as error:
        problems += error.problems
        return None, [Refused(name, str(path), str(error), malformed=True)]
    except Unservable as error:
        return None, [Refused(name, str(path), str(error), malformed=False)]
    return entry, [
        Refused(f"{name}:{profile}", str(path), reason, malformed=False) for profile, reason in profiles.items()
    ]


def _read_bundle(path: Path, source: str) -> Bundle:
    values, lines = read(path, BUNDLE)
    if not values.get("name"):
        raise CatalogError([lines.problem("name", "is missing")])
    adapters: list[str] = values.get("adapters") or []
    if not all(isinstance(adapter, str) for adapter in adapters):
        raise CatalogError([lines.problem("adapters", "must be a list of module names")])
    # the embedded bundle runs whatever this version has engines for
    modules = known_modules() if adapters == ["*"] else [module_of(adapter) for adapter in adapters]
    return Bundle(
        name=values["name"],
        engine=values.get("engine") or "native",
        adapters=tuple(modules),
        priority=values.get("priority", 100),
        source=source,
    )


def _files(directory: Path) -> list[Path]:
    """Raises CatalogError: the directory cannot be read."""
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"} and path.is_file())
    except OSError as error:
        raise CatalogError([Problem(str(directory), 1, "", f"cannot be read: {error.strerror}")]) from error


def _directories(environ: Mapping[str, str], name: str) -> list[Path]:
    found = [Path(part) for part in environ.get(name, "").split(os.pathsep) if part.strip()]
    missing = [path for path in found if not path.is_dir()]
    if missing:
        raise CatalogError([Problem(str(path), 1, "", f"{name}: is no directory") for path in missing])
    return found


def _aliases(environ: Mapping[str, str]) -> dict[str, str]:
    name = "SIE_GATEWAY_MODEL_ALIASES"
    raw = environ.get(name, "").strip()
    if not raw:
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise CatalogError([Problem(name, 1, "", f"must be a JSON object of strings: {error}")]) from error


def _split_bundle(model: str) -> tuple[str, str]:
    bundle, separator, name = model.partition(":/")
    return (bundle, name) if separator and bundle and name else ("", model)


def _row(entry: ModelEntry) -> dict[str, object]:
    row: dict[str, object] = {"sie_id": entry.name}
    if entry.revision:
        row["revision"] = entry.revision
    row["profiles"] = [{"name": name, "config": _config(entry.profiles[name])} for name in sorted(entry.profiles)]
    return row


def _config(profile: Profile) -> dict[str, object]:
    options = {"loadtime": profile.loadtime, "runtime": profile.runtime}
    return {
        "adapter_path": profile.adapter_path,
        "max_batch_tokens": profile.max_batch_tokens,
        "compute_precision": profile.compute_precision,
        "adapter_options": options if any(options.values()) else None,
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
