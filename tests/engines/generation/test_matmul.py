"""``matmul_precision: bfloat16``: products of a float32 model are rounded, what lies between them is not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import LinearBase

from engines.adapters import create
from engines.adapters.base import Engine
from engines.catalog.catalog import Catalog
from tests.engines.generation.helpers import answer, user, work

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
MODULE = "engines.adapters.vllm.matmul"
QUESTION = "What is the capital of France?"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def embedded() -> AsyncIterator[Engine]:
    """The model that a newcomer meets, as its entry says."""
    found = Catalog.from_env({}).resolve(MODEL)
    assert found.profile.loadtime["matmul_precision"] == "bfloat16"
    made = create(found.model, found.profile)
    await made.load()
    yield made
    await made.close()


async def test_answers_stay_near_those_of_float32(embedded: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, model = reference
    got = await answer(embedded, work(user(QUESTION), sampling={"max_tokens": 40, "logprobs": 1}))
    assert "Paris" in got.text
    told = await answer(embedded, work("Once upon a time", sampling={"max_tokens": 60, "logprobs": 1}))
    prompt = tokenizer("Once upon a time").input_ids
    text = tokenizer(told.text, add_special_tokens=False).input_ids
    logits = model(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    expected = logits[torch.arange(len(text)), text].tolist()
    found = [entry.logprob for entry in told.choices[0].logprobs]
    assert len(found) == len(expected) == 60
    distance = np.abs(np.subtract(found, expected))
    assert distance.mean() < 0.05
    if torch.cpu._is_amx_tile_supported():
        assert distance.mean() > 1e-4, "the entry's precision is in effect"


# --- single layers


class Linear(LinearBase):  # type: ignore[misc]  # vLLM's classes have no types here
    """A layer of vLLM's without the process groups that its constructor asks for."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        torch.nn.Module.__init__(self)
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)


class Head(torch.nn.Linear):
    """A layer that is none of vLLM's linear ones, as the one that gives the logits."""


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[torch.nn.Module, bool], None]]:
    """What prepares a layer in a worker process of such an engine. vLLM and this process stay as they are."""
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT")
    monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", utils.dispatch_cpu_unquantized_gemm)
    importlib.import_module(MODULE)
    yield utils.dispatch_cpu_unquantized_gemm
    del sys.modules[MODULE]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("size", [(64, 96), (2048, 576)], ids=["small", "large"])  # vLLM has a kernel for each
def test_a_layer_rounds_its_inputs_and_adds_its_bias_whole(prepare: Any, size: tuple[int, int], biased: bool) -> None:
    made = torch.Generator().manual_seed(0)
    weight, values = (torch.randn(n, size[1], generator=made) for n in (size[0], 5))
    bias = torch.randn(size[0], generator=made) * 1e-3 if biased else None
    layer = Linear(weight.clone(), bias)
    prepare(layer, True)
    got = layer.cpu_linear(values, layer.weight, layer.bias)
    exact = torch.nn.functional.linear(values.bfloat16().double(), weight.bfloat16().double())
    assert got.dtype == torch.float32
    without = got if bias is None else got - bias
    # what is left is the rounding of the result to bfloat16, of 8 bits
    np.testing.assert_allclose(without.numpy(), exact.numpy(), rtol=2**-8, atol=1e-5)
    assert layer.weight.numel() == 0, "the float32 weights are not kept"


def test_a_layer_that_gives_classes_or_a_score_is_not_rounded(prepare: Any) -> None:
    weight, values = torch.randn(2, 576), torch.randn(3, 576)
    layer = Linear(weight.clone(), None)
    prepare(layer, True)
    got = layer.cpu_linear(values, layer.weight, None)
    np.testing.assert_allclose(got.numpy(), torch.nn.functional.linear(values, weight).numpy(), atol=1e-4)


def test_logits_are_not_rounded(prepare: Any) -> None:
    head = Head(576, 4096, bias=False).requires_grad_(False)
    weight, values = head.weight.clone(), torch.randn(3, 576)
    prepare(head, False)
    got = head.cpu_linear(values, head.weight, None)
    np.testing.assert_allclose(got.numpy(), torch.nn.functional.linear(values, weight).numpy(), atol=1e-5)
    assert torch.equal(head.weight, weight), "embeddings that share them stay whole"
