"""Structured extraction around a scripted generation engine: what is asked of it, and what its answers become."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engines.adapters.base import EngineDead, EngineStatus, Reply, WorkError
from engines.adapters.documents.reader import Reader
from engines.adapters.vllm import extraction
from engines.protocol.catalog import Profile
from engines.protocol.cost import SIDE_BY_SIDE
from engines.protocol.events import FinishReason, Timing, Usage
from engines.protocol.work import ExtractWork, GenerateWork, Item, Work
from tests.engines.retrieval.helpers import Recorder

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
PROFILE = Profile(name="default", engine="vllm", adapter_path="tests", source="nowhere", runtime={"max_new_tokens": 77})


class Scripted:
    """Answers the text of the user's message with what the script has for it."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.works: list[GenerateWork] = []

    async def load(self) -> None: ...

    async def run(self, work: Work, reply: Reply) -> None:
        assert isinstance(work, GenerateWork)
        assert work.messages is not None
        self.works.append(work)
        answer = self.script[work.messages[-1]["content"]]
        if isinstance(answer, Exception):
            raise answer
        await asyncio.sleep(0)
        text, finish = answer if isinstance(answer, tuple) else (answer, "stop")
        end: FinishReason = finish
        reply.admitted(prompt_tokens=5)
        reply.delta(text=text, tokens=3, finish_reason=end)
        reply.completed(usage=Usage(prompt_tokens=5, completion_tokens=3), timing=Timing(inference_ms=2.0))

    def status(self) -> EngineStatus:
        return EngineStatus()

    async def close(self) -> None: ...


async def extracted(script: dict[str, Any], items: list[Item], **fields: Any) -> tuple[Recorder, Scripted]:
    engine, reply = Scripted(script), Recorder()
    work = ExtractWork(request_id="r", model="m", items=items, **{"output_schema": SCHEMA, **fields})
    await extraction.extract(engine, PROFILE, Reader(PROFILE), work, extraction.constraint(work), reply)
    return reply, engine


async def test_each_item_is_a_constrained_greedy_generation() -> None:
    items = [Item(text=text) for text in ("one", "two", "three")]
    script = {"one": '{"n": 1}', "two": '{"n": 2}', "three": '{"n": 3}'}
    reply, engine = await extracted(script, items, instruction="Count.")
    assert reply.output.items == [{"data": {"n": 1}}, {"data": {"n": 2}}, {"data": {"n": 3}}]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (15, 9)
    assert reply.events == ["admitted", "completed"]
    assert len({work.request_id for work in engine.works}) == 3
    for work in engine.works:
        assert work.grammar is not None
        assert (work.grammar.kind, json.loads(work.grammar.value)) == ("json_schema", SCHEMA)
        assert (work.sampling.temperature, work.sampling.max_tokens) == (0.0, 77)
        assert work.messages is not None
        assert "Count." in work.messages[0]["content"]
        assert json.dumps(SCHEMA) in work.messages[0]["content"]


async def test_options_reach_the_generation() -> None:
    options = {"max_new_tokens": 9, "temperature": 0.5, "seed": 4}
    _, engine = await extracted({"a": '{"n": 1}'}, [Item(text="a")], options=options)
    sampling = engine.works[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.seed) == (9, 0.5, 4)


async def test_an_item_that_fails_has_an_error_and_the_others_their_data() -> None:
    script = {
        "good": '{"n": 1}',
        "broken": "{",
        "wrong": '{"n": "x"}',
        "long": ('{"n": 1', "length"),
        "huge": WorkError("context_exceeded", "too long"),
        "failed": WorkError("inference_error", "it broke"),
    }
    reply, _ = await extracted(script, [*(Item(text=text) for text in script), Item()])
    results = reply.output.items
    assert results[0] == {"data": {"n": 1}}
    assert [result["error"]["code"] for result in results[1:]] == [
        "inference_error",
        "inference_error",
        "inference_error",
        "INVALID_INPUT",
        "inference_error",
        "INVALID_INPUT",
    ]
    messages = [result["error"]["message"] for result in results[1:]]
    for message, part in zip(
        messages, ["no JSON", "not valid", "not whole", "too long", "broke", "no text"], strict=True
    ):
        assert part in message


@pytest.mark.parametrize("error", [EngineDead("dead"), WorkError("RESOURCE_EXHAUSTED", "full", retry_after=5.0)])
async def test_a_fault_of_the_engine_is_none_of_an_item(error: WorkError) -> None:
    with pytest.raises(type(error)) as raised:
        await extracted({"a": error, "b": '{"n": 1}'}, [Item(text="a"), Item(text="b")])
    assert raised.value is error


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no schema": ({"output_schema": None}, "params.output_schema"),
    "no JSON Schema": ({"output_schema": {"type": "colour"}}, "params.output_schema"),
    "a schema elsewhere": ({"output_schema": {"$ref": "http://127.0.0.1:9/schema.json"}}, "params.output_schema"),
    "a schema without end": ({"output_schema": {"enum": ["x" * 300_000]}}, "params.output_schema"),
    "a file": ({"output_schema": {"$ref": "file:///etc/passwd"}}, "params.output_schema"),
    "labels": ({"labels": ["a"]}, "params.labels"),
    "an unknown option": ({"options": {"colour": 1}}, "params.options.colour"),
    "a length that is none": ({"options": {"max_new_tokens": 0}}, "params.options.max_new_tokens"),
    "a temperature that is none": ({"options": {"temperature": 3}}, "params.options.temperature"),
    "a seed that is none": ({"options": {"seed": 2**64}}, "params.options.seed"),
}


async def test_so_many_items_and_no_more_are_generated_for_at_a_time() -> None:
    class Counting(Scripted):
        running = most = 0

        async def run(self, work: Work, reply: Reply) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await super().run(work, reply)
            self.running -= 1

    engine, reply = Counting({"a": '{"n": 1}'}), Recorder()
    work = ExtractWork(request_id="r", model="m", items=[Item(text="a")] * 50, output_schema=SCHEMA)
    await extraction.extract(engine, PROFILE, Reader(PROFILE), work, extraction.constraint(work), reply)
    assert [item["data"] for item in reply.output.items] == [{"n": 1}] * 50
    assert engine.most == SIDE_BY_SIDE


@pytest.mark.parametrize("case", REFUSED)
async def test_what_means_nothing_is_refused_by_name(case: str) -> None:
    fields, param = REFUSED[case]
    with pytest.raises(WorkError) as refused:
        await extracted({"a": '{"n": 1}'}, [Item(text="a")], **fields)
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", param)
    assert "\n" not in refused.value.message
