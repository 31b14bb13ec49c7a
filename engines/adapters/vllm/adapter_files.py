"""The files of LoRA adapters: where they are, and whether they fit the model.

vLLM looks at that only in part: it puts a matrix that is too small into a corner of the one that it has, and leaves out
layers that the model lacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import torch
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from vllm.lora.peft_helper import PEFTHelper

from ..base import EngineLoadError

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Those for which vLLM makes room."""
PLAIN: Final = frozenset(("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"))
"""Types of the format safetensors that have one number in each place, so that a shape is that of the layer."""

Shape = tuple[int, ...]
_MATRIX = re.compile(r"(?:base_model\.model\.)?(?P<layer>.+)\.lora_(?P<embedding>embedding_)?(?P<half>[AB])(\.weight)?")
_BLOCK = re.compile(r"(?P<stack>.+?)\.(?P<index>\d+)\.")


def located(paths: Mapping[str, str]) -> dict[str, str]:
    """The folder of each adapter, by its served name: a folder in PEFT's layout, or fetched by its hub id. Blocks.

    Raises:
        EngineLoadError: it is not there, or lacks its configuration or its weights.
    """
    folders = {name: _folder(name, path) for name, path in paths.items()}
    for name, folder in folders.items():
        _config(name, folder)
        _weights(name, folder)
    return folders


def max_rank(folders: Mapping[str, str]) -> int:
    """The smallest rank vLLM allows that holds every adapter.

    Raises:
        EngineLoadError: a configuration cannot be read, or a rank is beyond vLLM's largest.
    """
    rank = 1
    for name, folder in folders.items():
        config = _config(name, folder)
        rank = max(rank, config.r, *config.rank_pattern.values())
        if rank > RANKS[-1]:
            message = f"LoRA adapter {name!r} at {folder!r} has rank {rank}; vLLM's largest is {RANKS[-1]}"
            raise EngineLoadError(message, error_class="LoraRankTooLarge", permanent=True)
    return next(allowed for allowed in RANKS if rank <= allowed)


def check_fit(folders: Mapping[str, str], model: str, revision: str | None) -> None:
    """That each adapter is one of the model's, a folder or a hub id whose files are here. Blocks.

    Layers that the model's files lack, or hold in a packed form, are left to vLLM.

    Raises:
        EngineLoadError: weights are broken or incomplete, or are those of another model.
    """
    base = _shapes_of_model(model, revision) if folders else {}
    blocks = {(block["stack"], block["index"]) for key in base if (block := _BLOCK.match(key))}
    stacks = {stack for stack, _ in blocks}
    for name, folder in folders.items():
        config = _config(name, folder)
        for layer, halves in _halves(name, folder).items():
            block = _BLOCK.match(layer)
            if block and block["stack"] in stacks and (block["stack"], block["index"]) not in blocks:
                raise unfit(name, folder, f"the model has no layer {block['stack']}.{block['index']}")
            if wrong := _misfit(halves, base.get(f"{layer}.weight"), _rank(config, layer)):
                raise unfit(name, folder, f"{layer} {wrong}")


def unfit(name: str, folder: str, reason: str) -> EngineLoadError:
    """An adapter that is whole, but not for this model."""
    message = f"LoRA adapter {name!r} at {folder!r} does not fit the model: {reason}"
    return EngineLoadError(message, error_class="LoraAdapterUnfit", permanent=True)


def _unreadable(name: str, path: str, reason: object, *, permanent: bool = True) -> EngineLoadError:
    message = f"LoRA adapter {name!r} at {path!r} cannot be read: {reason}"
    return EngineLoadError(message, error_class="LoraAdapterUnreadable", permanent=permanent)


def _folder(name: str, path: str) -> str:
    folder = Path(path).expanduser()
    if folder.is_dir():
        return str(folder.absolute())
    if path.startswith(("/", ".", "~")):
        raise _unreadable(name, path, "there is no such folder")
    try:
        return str(snapshot_download(path, allow_patterns=[CONFIG, *WEIGHTS]))
    except (OSError, ValueError, httpx.TransportError) as error:
        away = isinstance(error, LocalEntryNotFoundError | httpx.TransportError) and not constants.HF_HUB_OFFLINE
        raise _unreadable(name, path, f"no such folder, nor on the hub: {error}", permanent=not away) from error


def _config(name: str, folder: str) -> Any:
    try:
        return PEFTHelper.from_local_dir(folder, None)
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(name, folder, error) from error


def _rank(config: Any, layer: str) -> int | None:
    """The rank by the configuration; ``None`` for the matrices of all experts in one."""
    if layer.endswith((".experts", ".experts.base_layer")):
        return None
    rank: int = config.get_rank_and_scaling(layer)[0]
    return rank


def _weights(name: str, folder: str) -> Path:
    found = next((file for file in WEIGHTS if (Path(folder) / file).is_file()), None)
    if found is None:
        raise _unreadable(name, folder, f"there is none of {', '.join(WEIGHTS)}")
    return Path(folder) / found


def _halves(name: str, folder: str) -> dict[str, dict[str, Shape]]:
    """Shapes of the two matrices of each layer, ``A`` (rank, in) and ``B`` (out, rank); of an embedding it is the
    transposed weight that they make."""
    path = _weights(name, folder)
    try:
        shapes = _shapes(path)
    except Exception as error:  # each format has its own
        raise _unreadable(name, folder, f"{path.name}: {error}") from error
    halves: dict[str, dict[str, Shape]] = {}
    for key, shape in shapes.items():
        if found := _MATRIX.fullmatch(key):
            half = f"embedding {found['half']}" if found["embedding"] else found["half"]
            halves.setdefault(found["layer"], {})[half] = shape
    if not halves:
        raise _unreadable(name, folder, f"{path.name} holds no matrices of a LoRA")
    return halves


def _misfit(halves: Mapping[str, Shape], weight: Shape | None, rank: int | None) -> str | None:
    """What is wrong with the matrices of a layer whose weight, if it is known, has that shape."""
    embedding = any(half.startswith("embedding") for half in halves)
    first, second = (halves.get(f"embedding {half}" if embedding else half) for half in "AB")
    if first is None or second is None:
        return f"has no lora_{'A' if first is None else 'B'}"
    if rank is None:
        return None
    if len(first) != 2 or len(second) != 2 or not first[0] == second[1] == rank:
        return f"has matrices of {first} and {second} where the rank is {rank}"
    if weight is None or len(weight) != 2:
        return None
    inputs, outputs = weight if embedding else weight[::-1]
    if (first[1], second[0]) == (inputs, outputs):
        return None
    return f"has {inputs} inputs and {outputs} outputs, not {first[1]} and {second[0]}"


def _shapes_of_model(model: str, revision: str | None) -> dict[str, Shape]:
    """Shapes of the model's tensors; of packed ones an empty shape. Nothing, where they are not all in safetensors."""
    folder = Path(model)
    shapes: dict[str, Shape] = {}
    try:
        if not folder.is_dir():
            folder = Path(snapshot_download(model, revision=revision, local_files_only=True))
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118  # it is no mapping
                    part = tensors.get_slice(key)
                    shapes[key] = tuple(part.get_shape()) if part.get_dtype() in PLAIN else ()
    except (OSError, ValueError, SafetensorError):
        return {}
    return shapes


def _shapes(path: Path) -> dict[str, Shape]:
    """Shapes of the tensors in a file of an adapter."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as tensors:
            return {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
    loaded = torch.load(path, map_location="meta", weights_only=True)
    return {key: tuple(tensor.shape) for key, tensor in loaded.items()}
