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
from .. import images
from ..base import WorkError
from . import caller_template
from .toolprompt import described

NO_TEMPLATE = (
    "the tokenizer of model {model!r} has no chat template, so messages cannot be rendered; put a chat_template.jinja "
    "beside the model's files or set loadtime.chat_template in its catalog entry, or use /v1/completions with a prompt"
)


class Prompts:
    """Renders and tokenises the prompts of one model."""

    def __init__(
        self, entry: ModelEntry, renderer: BaseRenderer[Any], template: str | None, context_length: int
    ) -> None:
        self._entry = entry
        self._context_length = context_length
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
                rendered = await self._render_text(work, work.prompt or "", special_tokens=True)
            elif work.rendering.chat_template is not None:
                text = await self._from_caller(work, work.messages, work.rendering.chat_template)
                rendered = await self._render_text(work, text, special_tokens=work.rendering.add_special_tokens)
            else:
                rendered = await self._render_chat(work, work.messages)
        except ChatTemplateResolutionError:
            raise WorkError("invalid_request", NO_TEMPLATE.format(model=self._entry.name), param="messages") from None
        except VLLMClientError as error:
            message = f"the prompt cannot be rendered for this model: {error.args[0] if error.args else error}"
            raise WorkError("invalid_request", message, param="messages" if work.messages else "prompt") from None
        except ValueError as error:
            if not work.rendering.mm_processor_kwargs:
                raise
            # vLLM's own message repeats the picture and the prompt
            message = f"the model's processor does not take these options: {error.__cause__ or error}"
            raise WorkError("invalid_request", message[:500], param="mm_processor_kwargs") from None
        return rendered, list(rendered["prompt_token_ids"])

    async def _render_text(self, work: GenerateWork, text: str, *, special_tokens: bool) -> Any:
        params = self._tokenize(work, special_tokens=special_tokens)
        (rendered,) = await self._renderer.render_cmpl_async([{"prompt": text}], params, prompt_extras=_extras(work))
        return rendered

    async def _from_caller(self, work: GenerateWork, messages: list[dict[str, Any]], template: str) -> str:
        """The conversation in a template of the caller's.

        Raises:
            WorkError: there are images, whose place only the model's own template knows, or it cannot be rendered.
        """
        if work.images:
            raise WorkError("unsupported_field", "images need the model's own template", param="chat_template")
        options = work.rendering
        special = self._renderer.get_tokenizer().special_tokens_map
        variables = {
            **{name: value for name, value in special.items() if isinstance(value, str)},
            **self.template_kwargs(work),
            "messages": messages,
            "tools": work.tools if work.tool_choice != "none" else None,
            "documents": options.documents,
            "add_generation_prompt": options.add_generation_prompt,
        }
        try:
            text = await caller_template.render(template, variables)
        except caller_template.TemplateRefused as error:
            raise WorkError(
                "invalid_request", f"the template cannot be rendered: {error}", param="chat_template"
            ) from None
        return _left_open(text, str(messages[-1].get("content") or "")) if options.continue_final_message else text

    async def _render_chat(self, work: GenerateWork, messages: list[dict[str, Any]]) -> Any:
        tools = work.tools if work.tool_choice != "none" else None
        if not self._takes_tools:
            messages, tools = described(messages, tools), None
        pictures = [await asyncio.to_thread(images.decode, image, image.param or "messages") for image in work.images]
        conversation = [_message(message, pictures) for message in messages]
        params = ChatParams(
            chat_template=self._template,
            chat_template_kwargs={
                **self.template_kwargs(work),
                "add_generation_prompt": work.rendering.add_generation_prompt,
                "continue_final_message": work.rendering.continue_final_message,
                "documents": work.rendering.documents,
                "tools": tools,
                "tokenize": False,
            },
        )
        _, (rendered,) = await self._renderer.render_chat_async(
            [conversation],
            params,
            self._tokenize(work, special_tokens=work.rendering.add_special_tokens),
            prompt_extras=_extras(work),
        )
        return rendered

    def _tokenize(self, work: GenerateWork, *, special_tokens: bool) -> TokenizeParams:
        keep = work.rendering.truncate_prompt_tokens
        if keep is not None and work.images:
            raise WorkError("unsupported_field", "a prompt with images is not cut", param="truncate_prompt_tokens")
        if keep == -1:
            # a default limit gives way to the prompt
            output = 1 if work.sampling.max_tokens_is_default else work.sampling.max_tokens
            keep = max(1, self._context_length - output)
        return TokenizeParams(
            # without a limit here, a prompt that is too long is refused with its true length
            max_total_tokens=None,
            add_special_tokens=special_tokens,
            truncate_prompt_tokens=keep,
            truncation_side=None if keep is None else "left",
        )


def _extras(work: GenerateWork) -> dict[str, Any]:
    """What goes with the prompt beside its text."""
    options = {
        "cache_salt": work.rendering.cache_salt,
        "mm_processor_kwargs": work.rendering.mm_processor_kwargs or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _left_open(text: str, last: str) -> str:
    """``text`` up to the end of the message that is continued.

    Raises:
        WorkError: the template does not write that message as it is.
    """
    start = text.rfind(last.strip())
    if start < 0 or not last.strip():
        message = "the final message is not in what the template writes, so it cannot be continued"
        raise WorkError("invalid_request", message, param="continue_final_message")
    whole = text[start : start + len(last.lstrip())] == last.lstrip()
    return text[: start + len(last.lstrip() if whole else last.strip())]


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
