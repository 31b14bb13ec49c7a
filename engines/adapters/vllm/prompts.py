"""From a work item to the input of the engine: the model's own chat template, tokens, lengths."""

from __future__ import annotations

from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.renderers import BaseRenderer, ChatParams
from vllm.renderers.chat_utils import ChatTemplateResolutionError
from vllm.renderers.params import TokenizeParams

from ...protocol.catalog import ModelEntry
from ...protocol.work import GenerateWork
from ..base import WorkError

NO_TEMPLATE = (
    "the tokenizer of model {model!r} has no chat template, so messages cannot be rendered; "
    "put a chat_template.jinja beside the model's files, or use /v1/completions with a raw prompt"
)


class Prompts:
    """Renders and tokenises prompts for one model."""

    def __init__(self, entry: ModelEntry, renderer: BaseRenderer[Any], context_length: int) -> None:
        self._entry = entry
        self._renderer = renderer
        self._context_length = context_length

    async def render(self, work: GenerateWork) -> tuple[Any, int]:
        """The engine's input and its length in tokens.

        Raises:
            WorkError: the template refuses the messages, or there is none.
        """
        if work.messages is None:
            (rendered,) = await self._renderer.render_cmpl_async([{"prompt": work.prompt or ""}], self._tokenize(True))
        else:
            rendered = await self._render_chat(work, work.messages)
        return rendered, len(rendered["prompt_token_ids"])

    async def _render_chat(self, work: GenerateWork, messages: list[dict[str, Any]]) -> Any:
        kwargs = {**work.chat_template_kwargs, **self._template_kwargs()}
        params = ChatParams(
            chat_template_kwargs={
                **kwargs,
                "add_generation_prompt": True,
                "tools": work.tools if work.tool_choice != "none" else None,
                "tokenize": False,
            }
        )
        try:
            _, (rendered,) = await self._renderer.render_chat_async([messages], params, self._tokenize(False))
        except ChatTemplateResolutionError:
            raise WorkError("invalid_request", NO_TEMPLATE.format(model=self._entry.name), param="messages") from None
        except VLLMValidationError as error:
            message = f"the model's chat template refuses the messages: {error.args[0]}"
            raise WorkError("invalid_request", message, param="messages") from None
        return rendered

    def _template_kwargs(self) -> dict[str, Any]:
        return self._entry.generation.chat_template_kwargs if self._entry.generation else {}

    def _tokenize(self, special_tokens: bool) -> TokenizeParams:
        # no limit here: a prompt that is too long is refused with its true length
        return TokenizeParams(max_total_tokens=None, add_special_tokens=special_tokens)
