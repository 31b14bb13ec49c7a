"""POST /v1/embeddings: OpenAI embeddings over the native encode work. Source: contract E.1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engines.protocol.events import Completed, EncodeOutput, Usage
from engines.protocol.work import EncodeWork, Item
from generated.sie import models
from generated.sie.interfaces import Context

from ..errors import Failure, InvalidField
from ..surface import Surface
from . import vectors
from .batch import batch_failure
from .calls import resolve, run
from .items import given

MAX_INPUTS: Final = 256
_PATH_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*\Z")
_TOKENS: Final = (
    "'input' must be a string or an array of strings; arrays of token ids are not supported, because they belong to "
    "another tokenizer. LangChain's OpenAIEmbeddings sends text when created with check_embedding_ctx_length=False"
)
_text = msgspec.json.Encoder().encode


class EmbeddingsSurface(Surface):
    """The embeddings operation."""

    async def proxy_openai_embeddings(self, context: Context, body: models.OpenAIEmbeddingRequest) -> bytes:
        """Embed one text or up to 256; one vector per input in the order of the inputs, or an error.

        An empty string is embedded like any other text: its vector is that of the model's special tokens.
        ``dimensions`` and ``user`` are accepted and ignored, as the document says.

        Raises:
            Failure: by contract A.5, translated by A.6.
        """
        texts = _inputs(body.input)
        _check_path_safe(body.model)
        target = resolve(self.services, context, body.model, "encode")
        if "dense" not in target.model.dims:
            raise InvalidField("model", f"Model '{target.model.name}' has no dense embeddings")
        work = EncodeWork(
            **target.fields(context),
            items=[Item(text=text) for text in texts],
        )
        completed = await run(self.services, context, work, target)
        rows = _rows(completed, len(texts))
        try:
            if given(body.encoding_format) == "base64":
                embeddings = [b'"%b"' % text for text in vectors.base64_rows(rows)]
            else:
                embeddings = await vectors.json_rows(rows)
        except ValueError as error:
            raise _malformed(str(error)) from None
        return _response(body.model, embeddings, _tokens(completed.usage, texts))


def _inputs(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise InvalidField("input", "'input' must be a string or an array of strings")
    if not value:
        raise InvalidField("input", "'input' must not be an empty array")
    if len(value) > MAX_INPUTS:
        raise InvalidField("input", f"'input' has {len(value)} elements; at most {MAX_INPUTS} are allowed")
    if not all(isinstance(text, str) for text in value):
        raise InvalidField("input", _TOKENS)
    return value


def _check_path_safe(model: str) -> None:
    if not _PATH_SAFE.match(model) or ".." in model:
        raise InvalidField("model", "'model' must be the name of a model: letters, digits and . _ / : -")


def _rows(completed: Completed, count: int) -> NDArray[np.generic]:
    """The (count, dims) array of the answer."""
    output = completed.output
    if not isinstance(output, EncodeOutput):
        raise _malformed("the worker sent no vectors")
    if output.errors:
        raise batch_failure(output.errors, count) or _malformed(f"{len(output.errors)} of {count} inputs failed")
    if output.dense is None:
        raise _malformed("the worker sent no vectors")
    try:
        rows = vectors.array(output.dense)
    except ValueError as error:
        raise _malformed(str(error)) from None
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1] or rows.dtype.kind != "f":
        raise _malformed(f"the worker sent {rows.dtype} vectors of shape {rows.shape} for {count} inputs")
    return rows


def _malformed(message: str) -> Failure:
    return Failure(500, "transport_failure", f"Malformed encode result: {message}", native="INTERNAL_SERVER_ERROR")


def _tokens(usage: Usage, texts: Sequence[str]) -> int:
    """Tokens counted by the worker; an estimate of four bytes a token when it counted none."""
    return usage.prompt_tokens or max(1, sum(len(text.encode()) for text in texts) // 4)


def _response(model: str, embeddings: Sequence[bytes], tokens: int) -> bytes:
    data = b",".join(
        b'{"object":"embedding","embedding":%b,"index":%d}' % (embedding, index)
        for index, embedding in enumerate(embeddings)
    )
    return b'{"object":"list","data":[%b],"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}}' % (
        data,
        _text(model),
        tokens,
        tokens,
    )
