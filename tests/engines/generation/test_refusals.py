"""What vLLM itself refuses is the caller's fault, wherever vLLM says so."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.exceptions import EngineGenerateError

from engines.adapters.base import WorkError
from engines.adapters.vllm.engine import Prepared, VllmEngine
from engines.protocol.events import FailureCode
from engines.protocol.work import Grammar

from .helpers import Recorder, entry, work

REFUSAL = VLLMValidationError("top_k is odd", parameter="top_k", value=3)


class Refusing(VllmEngine):
    """Refuses with ``fault`` while the work is prepared, or in the engine."""

    def __init__(self, fault: Exception, *, early: bool) -> None:
        model = entry()
        super().__init__(model, model.profiles["default"])
        self.fault, self.early = fault, early
        self._llm: Any = SimpleNamespace(errored=False)

    async def _prepare(self, work: Any) -> Prepared:
        if self.early:
            raise self.fault
        params: Any = SimpleNamespace(max_tokens=1, n=1, structured_outputs=None)
        return Prepared("hi", [1], params, None, None)  # type: ignore[arg-type]  # nothing reads the plan

    def _choice(self, *_of: Any) -> Any:
        return None

    async def _outputs(self, *_of: Any) -> AsyncGenerator[Any]:  # type: ignore[override]
        raise EngineGenerateError from self.fault
        yield


@pytest.mark.parametrize(
    ("fault", "early", "code", "param"),
    [
        (REFUSAL, True, "invalid_request", "top_k"),
        (REFUSAL, False, "invalid_request", "top_k"),
        (ValueError("odd"), False, "inference_error", None),
    ],
    ids=["before admission", "in the engine", "a fault of the engine"],
)
async def test_what_vllm_refuses_is_the_requests_fault(
    fault: Exception, early: bool, code: FailureCode, param: str | None
) -> None:
    with pytest.raises(WorkError) as raised:
        await Refusing(fault, early=early).run(work("hi"), Recorder())
    assert (raised.value.code, raised.value.param) == (code, param)
    assert "odd" in raised.value.message and "parameter=" not in raised.value.message


class Compiler:
    """Compiles whatever has none of ``bad`` in it."""

    def __init__(self, bad: str) -> None:
        self.bad = bad

    async def compile(self, grammar: Grammar, param: str) -> str:
        if self.bad in grammar.value:
            raise WorkError("invalid_request", "it cannot be enforced", param=param)
        return grammar.value


@pytest.mark.parametrize(
    ("bad", "value", "param"),
    [
        ("wrong", {"pattern": "wrong", "x-guidance": {"whitespace_pattern": " "}}, "guided_json"),
        ("wrong", {"pattern": "a", "x-guidance": {"whitespace_pattern": "wrong"}}, "guided_whitespace_pattern"),
        ("wrong", {"pattern": "wrong"}, "guided_json"),
    ],
    ids=["the schema", "the pattern", "no pattern"],
)
async def test_a_schema_is_not_blamed_on_its_white_space(bad: str, value: Any, param: str) -> None:
    model = entry()
    engine = VllmEngine(model, model.profiles["default"])
    engine._grammars = Compiler(bad)  # type: ignore[assignment]  # nothing else of it is used
    with pytest.raises(WorkError) as refused:
        await engine._compiled(Grammar("json_schema", json.dumps(value)), "guided_json")
    assert refused.value.param == param
