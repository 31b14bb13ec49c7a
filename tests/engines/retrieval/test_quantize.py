"""Output dtypes against the sentences of the contract (F.3), written out row by row."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.adapters.retrieval.quantize import quantized
from tests.engines.retrieval.helpers import array

FLOATS = st.floats(-1e4, 1e4, width=32)
ROWS = st.integers(1, 20).flatmap(
    lambda width: st.lists(st.lists(FLOATS, min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(ROWS)
def test_int8_scales_each_row_by_its_largest(rows: list[list[float]]) -> None:
    values = np.array(rows, dtype=np.float32)
    got = array(quantized(values, "int8"))
    assert got.dtype == np.dtype("|i1")
    for row, out in zip(values, got, strict=True):
        peak = np.abs(row).max()
        wanted = np.rint(row / peak * 127) if peak else np.zeros_like(row)
        np.testing.assert_array_equal(out, wanted)


@given(ROWS)
def test_uint8_spreads_each_row_over_its_range(rows: list[list[float]]) -> None:
    values = np.array(rows, dtype=np.float32)
    got = array(quantized(values, "uint8"))
    assert got.dtype == np.dtype("|u1")
    for row, out in zip(values, got, strict=True):
        span = row.max() - row.min()
        wanted = np.rint((row - row.min()) / span * 255) if span else np.full_like(row, 128)
        np.testing.assert_array_equal(out, wanted)


@given(ROWS)
def test_binary_packs_signs_most_significant_bit_first(rows: list[list[float]]) -> None:
    got = array(quantized(np.array(rows, dtype=np.float32), "binary"))
    assert got.shape == (len(rows), (len(rows[0]) + 7) // 8)
    for row, out in zip(rows, got, strict=True):
        bits = "".join("1" if value > 0 else "0" for value in row)
        bits += "0" * (-len(bits) % 8)
        assert out.tolist() == [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]


def test_a_constant_row_of_uint8_is_what_the_caller_says() -> None:
    constant = np.full((1, 3), 0.5, dtype=np.float32)
    assert array(quantized(constant, "uint8")).tolist() == [[128] * 3]
    assert array(quantized(constant, "uint8", constant=0)).tolist() == [[0] * 3]


def test_int8_of_half_steps_rounds_to_even() -> None:
    values = np.array([[127.0, 0.5, 1.5, -2.5]], dtype=np.float32)
    assert array(quantized(values, "int8")).tolist() == [[127, 0, 2, -2]]


def test_floats_are_little_endian_bytes() -> None:
    values = np.array([[1.5, -2.25]], dtype=np.float32)
    assert quantized(values, "float32").data == struct.pack("<2f", 1.5, -2.25)
    assert quantized(values, "float16").data == struct.pack("<2e", 1.5, -2.25)


def test_float16_stays_finite() -> None:
    assert array(quantized(np.array([[1e6, -1e6]], dtype=np.float32), "float16")).tolist() == [[65504.0, -65504.0]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "binary"])
def test_no_rows_are_no_rows(dtype: str) -> None:
    assert quantized(np.zeros((0, 8), dtype=np.float32), dtype).data == b""  # type: ignore[arg-type]  # one of a list
