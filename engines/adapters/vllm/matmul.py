"""Imported in the worker processes of an engine whose entry says ``matmul_precision: bfloat16``.

Linear layers of a float32 model then have bfloat16 weights, take bfloat16 inputs (AMX tiles, half the memory to read)
and add up in float32; everything between them, the residual stream above all, stays float32. The product that gives
the logits rounds its inputs alone: rounded logits would be full of ties.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import LinearBase

NARROWEST = 16
"""Outputs of the narrowest layer that is rounded: fewer are the classes or the score of a model."""

os.environ.setdefault("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")


class Bfloat16Matmul:
    """vLLM's worker extension has to be a class; importing it is what counts."""


def _prepare(layer: Any, remove_weight: bool) -> None:
    """What vLLM does with the weights of a layer on the CPU before its first use, for bfloat16 where that fits."""
    if not _rounds(layer):
        _prepare_as_it_is(layer, remove_weight)
        return
    layer.weight = torch.nn.Parameter(layer.weight.detach().to(torch.bfloat16), requires_grad=False)
    bias, layer.bias = layer.bias, None
    _prepare_as_it_is(layer, remove_weight)
    layer.bias = bias
    product = layer.cpu_linear

    def linear(values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = product(values.to(torch.bfloat16), weight, None).to(values.dtype)
        return result if bias is None else result.add_(bias)

    layer.cpu_linear = linear


def _rounds(layer: Any) -> bool:
    weight = layer.weight
    if not isinstance(layer, LinearBase) or weight.is_meta or weight.dtype != torch.float32 or weight.ndim != 2:
        return False
    return bool(weight.shape[0] >= NARROWEST)


_prepare_as_it_is = utils.dispatch_cpu_unquantized_gemm
utils.dispatch_cpu_unquantized_gemm = _prepare
