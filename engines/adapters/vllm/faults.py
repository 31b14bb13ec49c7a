"""What vLLM raises, in the terms of the protocol: the same for an engine that generates and one that pools."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from vllm.exceptions import GracefulHTTPError, VLLMClientError
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from ...protocol.events import FailureCode
from ..base import WorkError
from .launch import dead

log = logging.getLogger("sie.vllm")


@contextlib.contextmanager
def translated(llm: AsyncLLM, name: str, request_id: str, refusal: FailureCode) -> Iterator[None]:
    """Around a request of model ``name``; ``refusal`` is the code of what vLLM blames on the request.

    Raises:
        EngineDead: the engine died, at this request or before.
        WorkError: the request was refused, the engine has no room for it, or failed at it (``inference_error``).
    """
    try:
        yield
    except EngineDeadError:
        raise dead(name) from None
    except GracefulHTTPError as error:
        raise WorkError("RESOURCE_EXHAUSTED", error.message, retry_after=5) from None
    except VLLMClientError as error:
        raise _refused(error, refusal) from None
    except EngineGenerateError as error:
        if llm.errored:
            raise dead(name) from None
        cause = error.__cause__
        if isinstance(cause, VLLMClientError):
            raise _refused(cause, refusal) from None
        log.error("request %s: the engine failed", request_id, exc_info=cause)
        raise WorkError("inference_error", f"the engine failed: {type(cause).__name__}: {cause}") from None


def _refused(error: VLLMClientError, code: FailureCode) -> WorkError:
    """With the name of the field, where vLLM knows it; its text would go on with that name and the value."""
    if not hasattr(error, "parameter"):
        return WorkError(code, str(error))
    return WorkError(code, str(error.args[0] if error.args else error), param=error.parameter)
