"""POST /v1/rerank and /v2/rerank: the Cohere subset over the native score work. Source: contract E.2."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec

from engines.protocol.work import Item, ScoreWork
from generated.sie import models
from generated.sie.interfaces import Context

from ..errors import Failure
from ..surface import Surface
from .calls import resolve, run
from .items import given
from .relevance import ranking, relevance
from .scores import checked_scores


class Document(msgspec.Struct):
    """A ranked document, an object because Cohere's clients read ``.text`` of it."""

    text: str


class Result(msgspec.Struct, omit_defaults=True):
    """``index`` is the position in the request's documents; ``relevance_score`` is from 0 to 1."""

    index: int
    relevance_score: float
    document: Document | None = None


class RerankResponse(msgspec.Struct):
    """The document's response with ``id`` and ``meta`` added, which Cohere's older clients and others require."""

    id: str
    model: str
    results: list[Result]
    usage: dict[str, int]
    meta: dict[str, dict[str, str]]


_encode: Final = msgspec.json.Encoder().encode


class RerankSurface(Surface):
    """Both rerank operations; they differ in their keys, not in their work."""

    async def proxy_rerank(self, context: Context, body: models.RerankRequest) -> bytes:
        """Rank documents by relevance to a query, as Cohere's v1 API does.

        Raises:
            Failure: by contract A.5, in the envelope ``{"message"}``.
        """
        return await self._rerank(context, body, "1", return_documents=bool(given(body.return_documents)))

    async def proxy_rerank_v2(self, context: Context, body: models.RerankV2Request) -> bytes:
        """Rank documents by relevance to a query, as Cohere's v2 API does; documents are never sent back.

        Raises:
            Failure: by contract A.5, in the envelope ``{"message"}``.
        """
        return await self._rerank(context, body, "2", return_documents=False)

    async def _rerank(
        self,
        context: Context,
        body: models.RerankRequest | models.RerankV2Request,
        version: str,
        *,
        return_documents: bool,
    ) -> bytes:
        options = given(body.options)
        target = resolve(
            self.services, context, body.model, "score", profile=None if options is None else given(options.profile)
        )
        work = ScoreWork(
            **target.fields(context),
            query=Item(text=body.query),
            items=[Item(text=text) for text in body.documents],
            max_sequence_length=None if options is None else given(options.max_seq_length),
        )
        completed = await run(self.services, context, work, target)
        output = checked_scores(completed, len(body.documents))
        if not completed.usage.prompt_tokens:
            raise Failure(500, "transport_failure", "The score result has no usage", native="INTERNAL_SERVER_ERROR")
        results = [
            Result(
                index=index,
                relevance_score=relevance(output.scores[index], output.kind),
                document=Document(body.documents[index]) if return_documents else None,
            )
            for index in ranking(output.scores)[: given(body.top_n)]
        ]
        usage = {"input_tokens": completed.usage.prompt_tokens}
        if completed.usage.images:
            usage["images"] = completed.usage.images
        return _encode(
            RerankResponse(
                id=str(uuid4()),
                model=target.model.name,
                results=results,
                usage=usage,
                meta={"api_version": {"version": version}},
            )
        )
