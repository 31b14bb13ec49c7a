"""Imported in the worker processes of an engine whose entry says ``matmul_precision: bfloat16``.

Matrix products of a float32 model then take bfloat16 inputs (AMX tiles) and add up in float32; everything between
them, the residual stream above all, stays float32.
"""

from __future__ import annotations

import os

os.environ["ONEDNN_DEFAULT_FPMATH_MODE"] = "BF16"


class Bfloat16Matmul:
    """vLLM's worker extension has to be a class; importing it is what counts."""
