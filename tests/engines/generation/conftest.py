"""One engine for all tests of generation: SmolLM2 in float32, with two tiny LoRA adapters."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engines import embedded
from engines.adapters import create
from engines.adapters.base import Engine
from engines.protocol.catalog import Profile
from tests.engines.generation.helpers import SMOLLM2, entry


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engine lives on one event loop, so all of its tests run on that one."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def weights() -> Path:
    """The prepared folder of SmolLM2."""
    return embedded.prepare(SMOLLM2)


@pytest.fixture(scope="session")
def adapters(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two LoRA adapters made with ``peft``, strong enough to change every answer."""
    return {
        name: str(_adapter(weights, tmp_path_factory.mktemp(name), seed)) for seed, name in enumerate(("one", "two"))
    }


def _adapter(weights: Path, folder: Path, seed: int) -> Path:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    config = LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(str(folder))
    return folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(adapters: dict[str, str]) -> AsyncIterator[Engine]:
    """The engine under test."""
    profile = Profile(
        name="default",
        engine="vllm",
        adapter_path="engines.adapters.vllm:VllmEngine",
        source=SMOLLM2,
        compute_precision="float32",
        loadtime={"tool_call_parser": "hermes", "max_num_seqs": 32},
        lora_paths=adapters,
    )
    made = create(entry(profile), profile)
    await made.load()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def reference(weights: Path) -> tuple[Any, Any]:
    """Tokenizer and model of ``transformers``, in float32 as well."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoTokenizer.from_pretrained(weights), AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
