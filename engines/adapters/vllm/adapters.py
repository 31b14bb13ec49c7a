"""LoRA adapters of a profile, by the names they are served under."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from ..base import EngineLoadError, WorkError
from . import adapter_files

LOOK_EVERY = 1.0


class Adapters:
    """``folders``, in PEFT's layout, by served name."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders
        self._requests = {
            name: LoRARequest(lora_name=name, lora_int_id=index, lora_path=folder)
            for index, (name, folder) in enumerate(sorted(folders.items()), start=1)
        }

    async def load(self, llm: AsyncLLM) -> None:
        """Have the engine take every adapter: one that it cannot use would end it at the first request.

        Raises:
            EngineLoadError: it does not take one; the message names it.
        """
        config = llm.model_config
        await asyncio.to_thread(adapter_files.check_fit, self._folders, config.model, config.revision)
        for name, request in self._requests.items():
            try:
                await _add(llm, request)
            except EngineDeadError as error:
                message = f"the engine died while it loaded the LoRA adapter {name!r}"
                raise EngineLoadError(message, error_class="EngineDeadError", permanent=False) from error
            except Exception as error:  # vLLM has one class for all that a call of its engine may end with
                reason = str(error).removeprefix("Call to add_lora method failed: ")
                raise adapter_files.unfit(name, request.lora_path, reason) from error

    def request(self, name: str | None) -> LoRARequest | None:
        """vLLM's handle for an adapter.

        Raises:
            WorkError: ``unknown_lora_adapter``.
        """
        if name is None:
            return None
        found = self._requests.get(name)
        if found is None:
            known = ", ".join(self._requests) or "none"
            message = f"no LoRA adapter is served as {name!r}; served are: {known}"
            raise WorkError("unknown_lora_adapter", message, param="lora_adapter")
        return found


async def _add(llm: AsyncLLM, request: LoRARequest) -> None:
    """Raises EngineDeadError: the engine died, at which vLLM leaves its calls without an answer."""
    adding = asyncio.ensure_future(llm.add_lora(request))
    try:
        while not adding.done():
            await asyncio.wait({adding}, timeout=LOOK_EVERY)
            if llm.errored and not adding.done():
                raise EngineDeadError
    finally:
        adding.cancel()
    adding.result()
