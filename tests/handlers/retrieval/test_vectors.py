"""Vectors as JSON text, base64 and MessagePack arrays."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pybase64
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engines.protocol.events import Tensor
from handlers.retrieval import numpy_msgpack, vectors

from . import sdk

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(hnp.arrays(np.float32, st.integers(0, 64), elements=finite))
def test_json_text_of_float32_reads_back_to_the_same_bits(values: Any) -> None:
    back = np.array(json.loads(vectors.json_numbers(values)), dtype=np.float64).astype(np.float32)
    assert back.tobytes() == values.tobytes()


def test_json_text_of_every_float16_reads_back_to_the_same_bits() -> None:
    values = np.arange(65536, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)]
    back = np.array(json.loads(vectors.json_numbers(values))).astype(np.float16)
    assert back.tobytes() == values.tobytes()


def test_json_text_of_a_unit_vector_has_no_noise_digits() -> None:
    values = np.random.default_rng(0).normal(size=384).astype(np.float32)
    digits = [
        len(number.strip("-").replace(".", "").lstrip("0"))
        for number in vectors.json_numbers(values)[1:-1].decode().split(",")
    ]
    assert max(digits) <= 9


@pytest.mark.parametrize("dtype", [">f4", "<f8", "<i4", "|i1", "|u1"])
@pytest.mark.parametrize("shape", [(0,), (3,), (0, 4), (2, 0), (2, 3)])
def test_json_text_of_any_array_has_its_shape_and_numbers(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    assert json.loads(vectors.json_numbers(values)) == values.tolist()
    assert json.loads(vectors.json_numbers(values.T)) == values.T.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
async def test_a_number_that_is_not_finite_is_refused_in_every_form(bad: float) -> None:
    values = np.array([[0.5, bad]], dtype=np.float32)
    with pytest.raises(ValueError, match="not finite"):
        vectors.json_numbers(values)
    with pytest.raises(ValueError, match="not finite"):
        await vectors.json_rows(values)
    with pytest.raises(ValueError, match="not finite"):
        vectors.base64_rows(values)


async def test_rows_of_a_large_array_keep_their_order() -> None:
    values = np.arange(200 * 500, dtype=np.float32).reshape(200, 500)
    rows = await vectors.json_rows(values)
    assert [json.loads(row) for row in rows] == values.tolist()


async def test_a_large_array_lets_others_in() -> None:
    encoding = asyncio.create_task(vectors.json_rows(np.ones((256, 1024), dtype=np.float32)))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 8  # the event loop had its turn between slices of 32768 numbers


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
def test_base64_is_little_endian_float32_whatever_the_array_is(dtype: str) -> None:
    values = np.array([[1.0, -2.5], [0.25, 3.0]], dtype=dtype)
    rows = vectors.base64_rows(values)
    assert [np.frombuffer(pybase64.b64decode(row), "<f4").tolist() for row in rows] == [[1.0, -2.5], [0.25, 3.0]]


def test_a_tensor_whose_bytes_do_not_fill_its_shape_is_refused() -> None:
    with pytest.raises(ValueError):
        vectors.array(Tensor(dtype="<f4", shape=(2, 3), data=b"\0" * 20))
    with pytest.raises(ValueError):
        vectors.array(Tensor(dtype="no such type", shape=(1,), data=b"\0"))


@pytest.mark.parametrize("dtype", ["<f4", "<f2", "<f8", "<i4", "|i1", "|u1"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 4)])
def test_an_array_in_messagepack_is_read_by_the_sdk(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    array = sdk.unpack(numpy_msgpack.encode({"values": values}))["values"]
    assert array.dtype == values.dtype and array.shape == values.shape and (array == values).all()


def test_a_transposed_array_is_written_in_row_order() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert (sdk.unpack(numpy_msgpack.encode(values)) == values).all()


def test_a_value_without_messagepack_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="object"):
        numpy_msgpack.encode({"a": object()})
