"""Constraints on the text: checked and compiled before the work is admitted.

vLLM keeps one backend for the life of an engine (the first request would choose it), so it is fixed when the engine
loads: llguidance, which refuses what it cannot enforce and does its work lazily. Each new grammar is tried in a process
with limits first: its own limits do not hold for every schema.
Tokenizers that it cannot read get xgrammar.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.structured_output.backend_guidance import serialize_guidance_grammar
from vllm.v1.structured_output.request import get_structured_output_key

from ...protocol.work import Grammar
from ..base import WorkError
from . import structural_tag
from .trial import TooCostly, Trial

MAX_CHARACTERS = 256 * 1024
MAX_SECONDS = 10.0


class Grammars:
    """Compiles constraints for one engine."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        self._model_config = config.model_config
        self._structured = config.structured_outputs_config
        self._tokenizer = tokenizer
        added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        self._special = {str(token): index for index, token in added.items() if token.special}
        self._trial: Trial | None = None
        if self._structured.backend == "guidance" and hasattr(tokenizer, "backend_tokenizer"):
            self._trial = Trial(tokenizer, config.model_config.get_vocab_size())
        self._known: dict[tuple[str, str], None] = {}

    async def compile(self, grammar: Grammar, param: str) -> StructuredOutputsParams:
        """vLLM's form of a constraint that is known to compile.

        Raises:
            WorkError: ``invalid_request`` for ``param``: it does not compile, cannot be enforced, or costs too much.
        """
        if len(grammar.value) > MAX_CHARACTERS:
            raise WorkError("invalid_request", f"the grammar is longer than {MAX_CHARACTERS} characters", param=param)
        try:
            params = self._params(grammar)
            if (grammar.kind, grammar.value) not in self._known:
                if self._trial is not None:
                    await self._trial.run(self._serialised(params))
                async with asyncio.timeout(MAX_SECONDS):
                    await asyncio.to_thread(self._check, params)
                self._remember(grammar)
        except TimeoutError:
            message = f"the grammar does not compile within {MAX_SECONDS:.0f} seconds"
            raise WorkError("invalid_request", message, param=param) from None
        except TooCostly as error:
            raise WorkError("invalid_request", str(error), param=param) from None
        except RecursionError:
            raise WorkError("invalid_request", "the grammar is nested too deeply", param=param) from None
        except (VLLMValidationError, ValueError, KeyError, TypeError) as error:
            message = f"the {grammar.kind} grammar cannot be enforced: {error.args[0] if error.args else error}"
            raise WorkError("invalid_request", message, param=param) from None
        return params

    def _check(self, params: StructuredOutputsParams) -> None:
        # the same check that vLLM makes when it takes the request, off the event loop and under a clock
        probe = SamplingParams(structured_outputs=params)
        probe._validate_structured_outputs(self._model_config, self._structured, self._tokenizer)

    def _serialised(self, params: StructuredOutputsParams) -> str:
        """The grammar as llguidance takes it, with the options that the engine will use."""
        settings = self._structured
        kind, value = get_structured_output_key(params)
        text: str = serialize_guidance_grammar(
            kind, value, settings.disable_any_whitespace, settings.disable_additional_properties
        )
        return text

    async def close(self) -> None:
        """End the process that tries grammars."""
        if self._trial is not None:
            await self._trial.close()

    def _remember(self, grammar: Grammar) -> None:
        if len(self._known) >= 1024:
            self._known.pop(next(iter(self._known)))
        self._known[grammar.kind, grammar.value] = None

    def _params(self, grammar: Grammar) -> StructuredOutputsParams:
        if grammar.kind == "json_object":
            return StructuredOutputsParams(json={"type": "object"})
        if grammar.kind == "json_schema":
            return StructuredOutputsParams(json=_schema(grammar.value))
        if grammar.kind == "regex":
            return StructuredOutputsParams(regex=grammar.value)
        if grammar.kind == "choice":
            return StructuredOutputsParams(choice=json.loads(grammar.value))
        if grammar.kind == "structural_tag":
            return self._tagged(grammar.value)
        return StructuredOutputsParams(grammar=grammar.value)

    def _tagged(self, text: str) -> StructuredOutputsParams:
        if self._structured.backend == "xgrammar":
            return StructuredOutputsParams(structural_tag=text)
        if self._structured.backend != "guidance":
            raise ValueError(f"{self._structured.backend!r} has no structural tags")
        options = {"whitespace_flexible": not self._structured.disable_any_whitespace}
        return StructuredOutputsParams(grammar=structural_tag.lark(text, self._special, options))


def _schema(text: str) -> str:
    """The schema as the backend takes it: ``true`` stands for any value."""
    schema = json.loads(text)
    if schema is True:
        return "{}"
    if not isinstance(schema, dict):
        raise ValueError("a schema must be an object")
    return text
