"""Bytes and names on the bus."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engines.bus import subjects, wire
from engines.bus.subjects import Lane
from engines.protocol.events import Delta, TokenLogprob


@given(st.lists(st.binary(max_size=40), max_size=70))
def test_packed_parts_are_one_array(values):
    assert msgspec.msgpack.decode(wire.pack([msgspec.msgpack.encode(value) for value in values])) == values


@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(min_value=1, max_value=120))
def test_a_split_keeps_every_part_in_order_and_each_run_in_the_limit(parts, limit):
    runs = list(wire.split(parts, limit))
    assert [part for run in runs for part in run] == parts
    assert all(len(run) == 1 or 5 + sum(map(len, run)) <= limit for run in runs)


def test_an_event_survives_the_wire():
    logprob = TokenLogprob("é", -0.5, "é".encode(), [TokenLogprob("a", -1.0, b"a")])
    event = Delta(request_id="r", attempt_id="a", seq=3, text="é", logprobs=[logprob])
    assert wire.decode_events(wire.pack([wire.encode(event)])) == [event]


@given(st.text(min_size=1))
def test_any_name_is_one_token_of_a_subject(name):
    token = subjects.token(name)
    assert token
    assert not set(token) & set(".*> \t\r\n")
    subject = Lane(name, name, name).subject(name)
    assert len(subject.split(".")) == 6


def test_model_names_are_escaped_as_the_contract_says():
    assert subjects.token("BAAI/bge-m3.v1") == "BAAI__bge-m3_dot_v1"
