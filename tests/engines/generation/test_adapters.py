"""LoRA adapters that cannot be served are a failure to load that names them, not an engine that dies at a request."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from vllm.lora.request import LoRARequest

from engines.adapters import create
from engines.adapters.base import Engine, EngineLoadError
from engines.adapters.vllm import adapters as adapters_module
from engines.adapters.vllm import engine as engine_module
from engines.adapters.vllm.adapter_files import check_fit, located, max_rank
from engines.adapters.vllm.adapters import Adapters
from engines.adapters.vllm.options import engine_args
from engines.protocol.catalog import Profile

from .helpers import SMOLLM2, answer, entry, work

Tensors = dict[str, torch.Tensor]
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def adapter(adapters: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Make a folder with a good adapter, changed: ``weights`` edits its tensors, other arguments are configuration."""

    def make(weights: Callable[[Tensors], object] = lambda _: None, **config: Any) -> str:
        folder = tmp_path / "legal"
        shutil.copytree(adapters["one"], folder)
        tensors = load_file(folder / "adapter_model.safetensors")
        weights(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")
        told = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**told, **config}))
        return str(folder)

    return make


def replaced(name: str, *shape: int) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({f"{LAYER}.{name}.weight": torch.ones(shape)})


def renamed(old: str, new: str) -> Callable[[Tensors], object]:
    def rename(tensors: Tensors) -> None:
        for key in [key for key in tensors if old in key]:
            tensors[key.replace(old, new)] = tensors.pop(key)

    return rename


def profile(**paths: str) -> Profile:
    return Profile(
        name="default",
        engine="vllm",
        adapter_path="engines.adapters.vllm:VllmEngine",
        source=SMOLLM2,
        compute_precision="float32",
        lora_paths=paths,
    )


def told(error: EngineLoadError) -> tuple[str, bool]:
    assert "'legal'" in str(error)
    return error.error_class, error.permanent


@pytest.mark.parametrize("path", ["/typo/path", "./typo", "~/typo", "typo/path", "no hub id"])
async def test_an_adapter_that_is_not_there_fails_the_load_before_an_engine_starts(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def launched(*_: object) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(engine_module, "launched", launched)
    # a hub that cannot be reached could be tomorrow
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    made = create(entry(chosen := profile(legal=path)), chosen)
    with pytest.raises(EngineLoadError) as refused:
        await made.load()
    assert told(refused.value) == ("LoraAdapterUnreadable", True)
    assert path in str(refused.value)
    await made.close()


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        _without("adapter_config.json"),
        _without("adapter_model.safetensors"),
        lambda folder: (folder / "adapter_config.json").write_text("[]"),
        lambda folder: (folder / "adapter_config.json").write_text('{"r": 4}'),
    ],
    ids=["no configuration", "no weights", "no object", "no target modules"],
)
def test_a_folder_that_is_no_adapter_is_refused(adapter: Callable[..., str], spoil: Callable[[Path], object]) -> None:
    folder = adapter()
    assert located({"legal": folder}) == {"legal": folder}
    spoil(Path(folder))
    with pytest.raises(EngineLoadError) as refused:
        located({"legal": folder})
    assert told(refused.value) == ("LoraAdapterUnreadable", True)


def test_weights_that_are_cut_off_are_refused(adapter: Callable[..., str], weights: Path) -> None:
    file = Path(folder := adapter()) / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(EngineLoadError) as refused:
        check_fit({"legal": folder}, str(weights), None)
    assert told(refused.value) == ("LoraAdapterUnreadable", True)


def test_weights_in_torchs_own_format_are_looked_at_too(adapter: Callable[..., str], weights: Path) -> None:
    file = Path(folder := adapter(replaced("lora_A", 4, 512))) / "adapter_model.safetensors"
    torch.save(load_file(file), file.with_suffix(".bin"))
    file.unlink()
    with pytest.raises(EngineLoadError, match="512"):
        check_fit({"legal": folder}, str(weights), None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced("lora_A", 4, 512), "has 576 inputs and 576 outputs, not 512 and 576"),
        (replaced("lora_B", 64, 4), "has 576 inputs and 576 outputs, not 576 and 64"),
        (replaced("lora_B", 1024, 4), "not 576 and 1024"),
        (replaced("lora_A", 8, 576), "where the rank is 4"),
        (lambda tensors: tensors.pop(f"{LAYER}.lora_B.weight"), "q_proj has no lora_B"),
        (renamed("layers.3.", "layers.30."), "the model has no layer model.layers.30"),
    ],
    ids=["narrow", "short", "long", "another rank", "half", "more layers"],
)
def test_weights_of_another_model_are_refused(
    adapter: Callable[..., str], weights: Path, change: Callable[[Tensors], object], reason: str
) -> None:
    with pytest.raises(EngineLoadError, match=reason) as refused:
        check_fit({"legal": adapter(change)}, str(weights), None)
    assert told(refused.value) == ("LoraAdapterUnfit", True)


def test_adapters_of_the_model_fit(adapters: dict[str, str], adapter: Callable[..., str], weights: Path) -> None:
    check_fit(adapters, str(weights), None)
    head = {"base_model.model.lm_head.lora_A.weight": (4, 576), "base_model.model.lm_head.lora_B.weight": (49152, 4)}
    tied = adapter(lambda tensors: tensors.update({key: torch.ones(shape) for key, shape in head.items()}))
    check_fit({"legal": tied}, str(weights), None)
    check_fit({"legal": tied}, "tests/no-such-model", None)


def test_the_rank_is_that_of_the_largest_layer(adapter: Callable[..., str]) -> None:
    assert max_rank({"legal": adapter(rank_pattern={"v_proj": 12})}) == 16


def test_a_rank_beyond_vllms_largest_is_refused(adapter: Callable[..., str]) -> None:
    with pytest.raises(EngineLoadError) as refused:
        max_rank({"legal": adapter(r=513)})
    assert told(refused.value) == ("LoraRankTooLarge", True)


@pytest.mark.parametrize(
    ("loadtime", "slots", "kept"),
    [({}, 3, 3), ({"max_loras": 1}, 3, 3), ({"max_loras": 5}, 5, 5), ({"max_cpu_loras": 9}, 3, 9)],
)
def test_every_adapter_is_kept_and_one_slot_stays_empty_on_the_cpu(
    adapters: dict[str, str],
    weights: Path,
    monkeypatch: pytest.MonkeyPatch,
    loadtime: dict[str, int],
    slots: int,
    kept: int,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    chosen = msgspec.structs.replace(profile(**adapters), loadtime=loadtime)
    arguments = engine_args(entry(), chosen, str(weights))
    assert (arguments.max_loras, arguments.max_cpu_loras) == (slots, kept)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(renamed("q_proj", "odd_proj"), "odd_proj"), (replaced("lora_A", 4, 512), "512")],
    ids=["target modules that the model lacks", "another shape"],
)
async def test_an_adapter_that_does_not_fit_fails_the_load_by_name(
    engine: Engine,
    adapters: dict[str, str],
    adapter: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Tensors], object],
    reason: str,
) -> None:
    running = engine._llm  # type: ignore[attr-defined]  # white box

    async def launched(*_: object) -> Any:
        return running

    # its name is the last one, for the engine has the other two
    chosen = profile(**adapters, zzz=adapter(change))
    made: Any = create(entry(chosen), chosen)
    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "launched", launched)
        with pytest.raises(EngineLoadError, match=reason) as refused:
            await made.load()
    made._llm = None  # it is that of all tests
    await made.close()
    assert "'zzz'" in str(refused.value)
    assert (refused.value.error_class, refused.value.permanent) == ("LoraAdapterUnfit", True)
    assert (await answer(engine, work("The capital of France is", lora_adapter="two"))).text


async def test_an_engine_that_dies_of_an_adapter_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def add_lora(_: LoRARequest) -> bool:
        await asyncio.sleep(600)
        return True

    monkeypatch.setattr(adapters_module, "LOOK_EVERY", 0.01)
    monkeypatch.setattr("engines.adapters.vllm.adapter_files.check_fit", lambda *_: None)
    config = SimpleNamespace(model="x", revision=None)
    llm: Any = SimpleNamespace(errored=True, add_lora=add_lora, model_config=config)
    with pytest.raises(EngineLoadError) as failed:
        await Adapters({"legal": "x"}).load(llm)
    assert told(failed.value) == ("EngineDeadError", False)
