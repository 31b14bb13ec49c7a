"""From a work item to the input of the engine: the model's own chat template, images, tokens."""

from __future__ import annotations

import asyncio
from typing import Any

import jinja2
import jinja2.meta
import jinja2.sandbox
from vllm.exceptions import VLLMClientError
from vllm.renderers import BaseRenderer, ChatParams
from vllm.renderers.chat_utils import ChatTemplateResolutionError
from vllm.renderers.params import TokenizeParams

from ...protocol.catalog import ModelEntry
from ...protocol.work import GenerateWork
from ..base import WorkError
from . import images
from .toolprompt import described

NO_TEMPLATE = (
    "the tokenizer of model {model!r} has no chat template, so messages cannot be rendered; put a chat_template.jinja "
    "beside the model's files or set loadtime.chat_template in its catalog entry, or use /v1/completions with a prompt"
)


class Prompts:
    """Renders and tokenises the prompts of one model."""

    def __init__(self, entry: ModelEntry, renderer: BaseRenderer[Any], template: str | None) -> None:
        self._entry = entry
        self._renderer = renderer
        self._template = template
        self._takes_tools = _takes_tools(renderer, template)

    def template_kwargs(self, work: GenerateWork) -> dict[str, Any]:
        """Arguments of the template: the caller's, and the model entry's where both set one."""
        own = self._entry.generation.chat_template_kwargs if self._entry.generation else {}
        return {**work.chat_template_kwargs, **own}

    async def render(self, work: GenerateWork) -> tuple[Any, list[int]]:
        """The engine's input and the tokens of the prompt.

        Raises:
            WorkError: the template refuses the messages, there is none, or an image cannot be read.
        """
        try:
            if work.messages is None:
                prompts = [{"prompt": work.prompt or ""}]
                (rendered,) = await self._renderer.render_cmpl_async(prompts, _tokenize(special_tokens=True))
            else:
                rendered = await self._render_chat(work, work.messages)
        except ChatTemplateResolutionError:
            raise WorkError("invalid_request", NO_TEMPLATE.format(model=self._entry.name), param="messages") from None
        except VLLMClientError as error:
            message = f"the prompt cannot be rendered for this model: {error.args[0] if error.args else error}"
            raise WorkError("invalid_request", message, param="messages" if work.messages else "prompt") from None
        return rendered, list(rendered["prompt_token_ids"])

    async def _render_chat(self, work: GenerateWork, messages: list[dict[str, Any]]) -> Any:
        tools = work.tools if work.tool_choice != "none" else None
        if not self._takes_tools:
            messages, tools = described(messages, tools), None
        pictures = [await asyncio.to_thread(images.decode, image, "messages") for image in work.images]
        conversation = [_message(message, pictures) for message in messages]
        params = ChatParams(
            chat_template=self._template,
            chat_template_kwargs={
                **self.template_kwargs(work),
                "add_generation_prompt": True,
                "tools": tools,
                "tokenize": False,
            },
        )
        _, (rendered,) = await self._renderer.render_chat_async(
            [conversation],
            params,
            _tokenize(special_tokens=False),
        )
        return rendered


def _message(message: dict[str, Any], pictures: list[Any]) -> dict[str, Any]:
    """A message as vLLM's renderers read it: text parts joined, images in their place."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    content: list[dict[str, Any]] = []
    for part in parts:
        if part["type"] == "image":
            content.append({"type": "image_pil", "image_pil": pictures[part["index"]]})
        elif content and content[-1]["type"] == "text":
            content[-1]["text"] += part["text"]
        else:
            content.append({"type": "text", "text": part["text"]})
    if all(part["type"] == "text" for part in content):
        return {**message, "content": "".join(part["text"] for part in content)}
    return {**message, "content": content}


def _tokenize(*, special_tokens: bool) -> TokenizeParams:
    # without a limit here, a prompt that is too long is refused with its true length
    return TokenizeParams(max_total_tokens=None, add_special_tokens=special_tokens)


def _takes_tools(renderer: BaseRenderer[Any], template: str | None) -> bool:
    """Whether the chat template reads ``tools``; true where the renderer has no Jinja template."""
    find = getattr(renderer.tokenizer, "get_chat_template", None)
    if find is None:
        return True
    try:
        text = template or find(None, tools=[{}])
        names = jinja2.meta.find_undeclared_variables(jinja2.sandbox.SandboxedEnvironment().parse(text))
    except jinja2.TemplateError:
        return "tools" in text
    except Exception:
        return True  # no template, or none that can be read here: rendering will say so
    return "tools" in names
