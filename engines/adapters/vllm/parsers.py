"""vLLM's tool and reasoning parsers of one model, and the machines that feed them while text arrives."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.reasoning import ReasoningParser, ReasoningParserManager
from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser
from vllm.tool_parsers import ToolParser, ToolParserManager
from vllm.tool_parsers.utils import get_json_schema_from_tools

from ...protocol.work import GenerateWork, Grammar
from ..base import EngineLoadError, WorkError
from .thinking import Deferred, Marked, Thinking
from .toolcalls import JSON_CALL, Automatic, CallPart, Named, Parsed, Required, ToolCalls

log = logging.getLogger("sie.vllm")

TOOL_NAMES = {
    "qwen": "hermes",
    "qwen25": "hermes",
    "llama3": "llama3_json",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v31",
    "deepseekv32": "deepseek_v32",
    "deepseekv4": "deepseek_v4",
    "glm": "glm45",
    "gpt-oss": "openai",
    "minimax-m2": "minimax_m2",
}
"""Names of parsers in SIE's model files (SGLang's) that vLLM spells differently."""

REASONING_NAMES = {
    "deepseek-r1": "deepseek_r1",
    "deepseek-v3": "deepseek_v3",
    "deepseek-v4": "deepseek_v4",
    "qwen3-thinking": "qwen3",
    "gpt-oss": "openai_gptoss",
    "kimi": "kimi_k2",
    "minimax": "minimax_m2",
    "minimax-append-think": "minimax_m2_append_think",
    "nano_v3": "nemotron_v3",
}

_TOOL_CALL = ("<tool_call>", "</tool_call>")
_DEEPSEEK = ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>")
MARKS: dict[str, tuple[str, str | None]] = {
    "hermes": _TOOL_CALL,
    "qwen3_json": _TOOL_CALL,
    "qwen3_coder": _TOOL_CALL,
    "qwen3_xml": _TOOL_CALL,
    "glm45": _TOOL_CALL,
    "glm47": _TOOL_CALL,
    "longcat": ("<longcat_tool_call>", "</longcat_tool_call>"),
    "jamba": ("<tool_calls>", "</tool_calls>"),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v31": _DEEPSEEK,
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "seed_oss": ("<seed:tool_call>", "</seed:tool_call>"),
    "mistral": ("[TOOL_CALLS]", None),
    "granite-20b-fc": ("<function_call>", None),
}
"""Where the calls of a parser stand in the text. The text of a parser that is not listed waits for its end."""
JSON_CALLS = frozenset(("hermes", "qwen3_json", "longcat", "jamba"))
"""Parsers of calls that are JSON objects of name and arguments: the arguments flow while the model writes them."""
TAGGED_CALLS = frozenset(("hermes", "longcat"))
"""Parsers of calls that are one such object between marks: a grammar can hold its arguments to a schema."""


class Parsers:
    """The parsers that a profile names."""

    def __init__(self, tokenizer: Any, model_config: Any, tool: str | None, reasoning: str | None) -> None:
        """
        Raises:
            EngineLoadError: vLLM has no parser of that name, or it does not fit the tokenizer.
        """
        self._tokenizer = tokenizer
        self._special = frozenset(getattr(tokenizer, "all_special_ids", ()))
        self._model_config = model_config
        self._tool_name = TOOL_NAMES.get(tool, tool) if tool else None
        self._tool: type[ToolParser] | None = None
        self._reasoning: type[ReasoningParser] | None = None
        try:
            if self._tool_name:
                self._tool = ToolParserManager.get_tool_parser(self._tool_name)
                self._tool(tokenizer)
            if reasoning:
                self._reasoning = ReasoningParserManager.get_reasoning_parser(REASONING_NAMES.get(reasoning, reasoning))
                self._reasoning(tokenizer, model_config=model_config)
        except Exception as error:
            message = f"parsers tool_call_parser={tool!r}, reasoning_parser={reasoning!r} cannot be used: {error}"
            raise EngineLoadError(message, error_class="ParserUnavailable", permanent=True) from error

    def plan(self, work: GenerateWork, template_kwargs: dict[str, Any]) -> Plan:
        """How the text of one request is taken apart."""
        return Plan(self, work, template_kwargs)


class Plan:
    """Parsers of one request, shared by its choices."""

    def __init__(self, parsers: Parsers, work: GenerateWork, template_kwargs: dict[str, Any]) -> None:
        chat = work.messages is not None
        self._work = work
        self._tool_name = parsers._tool_name
        self._special = parsers._special
        self._choice = work.tool_choice if work.tool_choice is not None else "auto"
        self._tools = bool(work.tools) and self._choice != "none" and chat
        self._one = not work.parallel_tool_calls
        self.reasoning_kwargs = {"chat_template_kwargs": template_kwargs}
        self._request: ChatCompletionRequest | None = None
        self._reasoning: ReasoningParser | None = None
        self._tool: ToolParser | None = None
        if self._tools or (chat and parsers._reasoning is not None):
            self._request = _request(work)
        if chat and parsers._reasoning is not None:
            self._reasoning = parsers._reasoning(
                parsers._tokenizer, model_config=parsers._model_config, **self.reasoning_kwargs
            )
        if self._tools and self._choice == "auto" and parsers._tool is not None:
            self._tool = parsers._tool(parsers._tokenizer, self._request.tools if self._request else None)
            if hasattr(self._tool, "skip_reasoning_parsing"):
                # thinking is taken out before this parser sees the text
                self._tool.skip_reasoning_parsing = True

    @property
    def forced(self) -> bool:
        """Whether a grammar has to force a call."""
        return self._tools and self._choice != "auto"

    @property
    def keeps_special_tokens(self) -> bool:
        """Whether the marks are special tokens, which the text must then show."""
        if self._request is None:
            return False
        request = self._request
        for parser in (self._reasoning, self._tool):
            if parser is not None:
                request = parser.adjust_request(request)
        return not request.skip_special_tokens

    def grammar(self) -> Grammar:
        """The grammar of a forced call.

        Raises:
            WorkError: the definitions of the tools contradict each other.
        """
        assert self._request is not None
        try:
            schema = get_json_schema_from_tools(
                self._request.tool_choice or "auto", list(self._request.tools or ()), not self._one
            )
        except ValueError as error:
            raise WorkError("invalid_request", str(error), param="tools") from None
        if isinstance(schema, dict) and self._choice == "required":
            # vLLM leaves the elements open: the model could write on, unseen, after a whole call
            for element in schema["items"]["anyOf"]:
                element["additionalProperties"] = False
                arguments = element["properties"]["parameters"]
                element["properties"]["parameters"] = {**arguments, "type": "object"}
        elif isinstance(schema, dict):
            schema = {**schema, "type": "object"}
        return Grammar("json_schema", schema if isinstance(schema, str) else json.dumps(schema))

    def strict_calls(self) -> Grammar | None:
        """The grammar of a text with calls, as far as the model makes any, where the arguments of ``strict`` tools keep
        to their schemas; ``None`` when none is strict.

        Raises:
            WorkError: the calls of this model cannot be held to a schema, or the text has a grammar already.
        """
        tools = list(self._work.tools or ()) if self._tool is not None else []
        strict = next((index for index, tool in enumerate(tools) if tool["function"].get("strict")), None)
        if strict is None:
            return None
        param = f"tools[{strict}].function.strict"
        if self._tool_name not in TAGGED_CALLS:
            message = "this model's calls cannot be held to a schema unless 'tool_choice' demands one"
            raise WorkError("unsupported_field", message, param=param)
        if self._work.grammar is not None:
            message = "calls that may be made cannot be held to a schema beside another grammar"
            raise WorkError("unsupported_field", message, param=param)
        start, end = MARKS[self._tool_name]
        form = {
            "type": "triggered_tags",
            "triggers": [start],
            "tags": [_tag(tool["function"], start, end or "") for tool in tools],
            "stop_after_first": self._one,
        }
        return Grammar("structural_tag", json.dumps({"format": form}))

    def answer_begins(self, prompt: Sequence[int]) -> bool | None:
        """Whether the prompt has ended the thinking; ``None`` without a reasoning parser."""
        parser = self._reasoning
        if parser is None:
            return None
        read = list(prompt)
        if isinstance(parser, BaseThinkingReasoningParser):
            # it would find marks that a message speaks of: what counts comes after the head of the last turn
            heads = self._special - {parser.start_token_id, parser.end_token_id}
            read = list(reversed([*takewhile(lambda token: token not in heads, reversed(read))]))
        return bool(parser.is_reasoning_end(read))

    def thinking(self, prompt: Sequence[int]) -> Thinking | None:
        """A new machine for one choice, ``None`` when there is nothing to take apart."""
        parser, request = self._reasoning, self._request
        if parser is None or request is None or self.answer_begins(prompt):
            return None

        def split(text: str) -> tuple[str, str]:
            thought, answer = parser.extract_reasoning(text, request)
            return thought or "", answer or ""

        start, end = parser.reasoning_start_str, parser.reasoning_end_str
        if not start or not end:
            return Deferred(split)
        # what the parser makes of text without any mark tells how an answer begins
        return Marked(start, end, open=bool(split("x")[0]))

    def tool_calls(self) -> ToolCalls | None:
        """A new machine for one choice, ``None`` when there are no calls to find."""
        if not self._tools:
            return None
        if isinstance(self._choice, dict):
            return Named(str(self._choice["function"]["name"]))
        if self._choice == "required":
            return Required()
        if self._tool is None:
            return None
        start, end = MARKS.get(self._tool_name or "", (None, None))
        head = JSON_CALL if self._tool_name in JSON_CALLS else None
        return Automatic(self._parse, start, end, at_most=1 if self._one else None, head=head)

    def _parse(self, text: str) -> Parsed:
        assert self._tool is not None and self._request is not None
        found = self._tool.extract_tool_calls(text, self._request)
        if not found.tools_called:
            return Parsed(text, ())
        calls = tuple(CallPart(call.function.name, call.function.arguments or "{}") for call in found.tool_calls)
        return Parsed(found.content or "", calls)


def _tag(function: dict[str, Any], start: str, end: str) -> dict[str, Any]:
    schema = (function.get("parameters") or {}) if function.get("strict") else {}
    return {
        "type": "tag",
        "begin": f'{start}\n{{"name": {json.dumps(function["name"])}, "arguments": ',
        "content": {"type": "json_schema", "json_schema": {**schema, "type": "object"}},
        "end": f"}}\n{end}",
    }


def _request(work: GenerateWork) -> ChatCompletionRequest:
    """The request as vLLM's parsers want to see it: tools and choice, without the conversation."""
    return ChatCompletionRequest(
        messages=[{"role": "user", "content": ""}],
        tools=work.tools,
        tool_choice=work.tool_choice if work.tool_choice is not None and work.tools else None,
        parallel_tool_calls=work.parallel_tool_calls,
        chat_template_kwargs=dict(work.chat_template_kwargs),
    )
