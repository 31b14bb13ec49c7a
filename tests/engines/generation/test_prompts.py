"""Templates: rendered by vLLM's renderer without an engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm import AsyncEngineArgs
from vllm.renderers import renderer_from_config

from engines.adapters.base import WorkError
from engines.adapters.vllm.prompts import Prompts
from engines.protocol.catalog import Generation
from engines.protocol.work import Rendering
from tests.engines.generation.helpers import entry, user, work

CONTEXT = 2048
NO_SYSTEM = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{{ message['content'] }}\n{% endfor %}"
)
THINKING = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ 'think' if enable_thinking else 'answer' }}"
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]

Open = Callable[..., Prompts]


@pytest.fixture(scope="module")
def folders(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """SmolLM2 without its weights, with and without its chat template."""
    made = {}
    for name in ("plain", "bare"):
        made[name] = tmp_path_factory.mktemp(name)
        for file in weights.iterdir():
            if file.suffix != ".safetensors" and not (name == "bare" and file.name == "chat_template.jinja"):
                shutil.copy(file, made[name])
    return made


@pytest.fixture(scope="module")
def open_prompts(folders: dict[str, Path]) -> Open:
    renderers: dict[str, Any] = {}

    def make(folder: str = "plain", template: str | None = None, **kwargs: Any) -> Prompts:
        if folder not in renderers:
            arguments = AsyncEngineArgs(model=str(folders[folder]), max_model_len=CONTEXT, enforce_eager=True)
            renderers[folder] = renderer_from_config(arguments.create_engine_config())
        chosen = entry(generation=Generation(context_length=CONTEXT, chat_template_kwargs=kwargs))
        return Prompts(chosen, renderers[folder], template, CONTEXT)

    return make


def text_of(prompts: Prompts, tokens: list[int]) -> str:
    return str(prompts._renderer.get_tokenizer().decode(tokens))


async def test_a_model_without_a_template_says_what_to_configure_and_takes_prompts(open_prompts: Open) -> None:
    prompts = open_prompts("bare")
    with pytest.raises(WorkError) as refused:
        await prompts.render(work(user("Hello")))
    assert (refused.value.code, refused.value.param) == ("invalid_request", "messages")
    assert "chat_template" in refused.value.message
    _, tokens = await prompts.render(work("Hello"))
    assert text_of(prompts, tokens) == "Hello"


async def test_a_role_that_the_template_refuses_is_named_in_its_own_words(open_prompts: Open) -> None:
    prompts = open_prompts(template=NO_SYSTEM)
    with pytest.raises(WorkError) as refused:
        await prompts.render(work([{"role": "system", "content": "Be brief."}, *user("Hello")]))
    assert (refused.value.code, refused.value.param) == ("invalid_request", "messages")
    assert "System role not supported" in refused.value.message
    _, tokens = await prompts.render(work(user("Hello")))
    assert text_of(prompts, tokens) == "Hello\n"


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [({}, {"enable_thinking": True}, "think"), ({"enable_thinking": False}, {"enable_thinking": True}, "answer")],
)
async def test_the_entrys_template_arguments_win(
    open_prompts: Open, own: dict[str, Any], asked: dict[str, Any], expected: str
) -> None:
    prompts = open_prompts(template=THINKING, **own)
    _, tokens = await prompts.render(work(user("Hello "), chat_template_kwargs=asked))
    assert text_of(prompts, tokens) == f"Hello {expected}"


@pytest.mark.parametrize(
    ("words", "limit", "default", "kept"),
    [
        (500, CONTEXT, True, 500),
        (5000, CONTEXT, True, CONTEXT - 1),
        (5000, 24, False, CONTEXT - 24),
        (5000, CONTEXT, False, 1),
    ],
    ids=["it fits", "a default gives way", "room is left for what was asked", "no room"],
)
async def test_a_prompt_is_cut_to_what_leaves_room_for_the_answer(
    open_prompts: Open, words: int, limit: int, default: bool, kept: int
) -> None:
    prompts = open_prompts(template="{{ messages[0].content }}")
    item = work(
        user(" word" * words),
        sampling={"max_tokens": limit, "max_tokens_is_default": default},
        rendering=Rendering(truncate_prompt_tokens=-1),
    )
    _, tokens = await prompts.render(item)
    assert len(tokens) == kept


async def test_tools_reach_a_template_that_reads_them(open_prompts: Open) -> None:
    prompts = open_prompts(template="{{ tools[0]['function']['name'] if tools else 'no tools' }}")
    _, tokens = await prompts.render(work(user("Hello"), tools=TOOLS))
    assert text_of(prompts, tokens) == "clock"
    _, tokens = await prompts.render(work(user("Hello"), tools=TOOLS, tool_choice="none"))
    assert text_of(prompts, tokens) == "no tools"


async def test_calls_and_results_are_written_out_for_a_template_that_knows_none(open_prompts: Open) -> None:
    prompts = open_prompts()
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "CET"}'}}
    messages = [
        *user("What time is it?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Noon"},
    ]
    _, tokens = await prompts.render(work(messages, tools=TOOLS))
    text = text_of(prompts, tokens)
    for part in ('<tools>\n{"type": "function"', '{"name": "clock", "arguments": {"zone": "CET"}}', "Noon"):
        assert part in text
