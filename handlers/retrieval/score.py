"""POST /v1/score/{model}: raw scores of items against a query, ranked. Source: contract F.4."""

from __future__ import annotations

from engines.protocol.work import ScoreWork
from generated.sie import models
from generated.sie.interfaces import Context

from ..surface import Surface
from . import replies
from .calls import resolve, run
from .items import given, item, items, options, take_length, take_text
from .relevance import ranking
from .scores import checked_scores


class ScoreSurface(Surface):
    """The native score operation."""

    async def proxy_score(self, context: Context, model: str, body: models.ScoreRequest) -> bytes:
        """Score every item against the query; highest first, ties in request order, ``rank`` from 0.

        Scores are the model's own: logits of a cross-encoder, MaxSim sums, cosines. The whole list is one work item, so
        there is no partial success.

        Raises:
            Failure: by contract A.5.
        """
        tuning = options(body.options, "options")
        target = resolve(self.services, context, model, "score", profile=take_text(tuning, "profile", "options"))
        promoted = take_text(tuning, "instruction", "options")
        instruction = given(body.instruction)
        work = ScoreWork(
            **target.fields(context),
            query=item(body.query, "query", target.model),
            items=items(body.items, target.model),
            instruction=promoted if instruction is None else instruction,
            max_sequence_length=take_length(tuning, "max_seq_length", "options"),
            options=tuning,
        )
        completed = await run(self.services, context, work, target)
        output = checked_scores(completed, len(work.items))
        reply: dict[str, object] = {"model": target.model.name}
        if work.query.id is not None:
            reply["query_id"] = work.query.id
        reply["scores"] = [
            {"item_id": replies.item_id(work.items[index], index), "score": output.scores[index], "rank": rank}
            for rank, index in enumerate(ranking(output.scores))
        ]
        usage = completed.usage
        if usage.prompt_tokens:
            reply["usage"] = {"input_tokens": usage.prompt_tokens} | ({"images": usage.images} if usage.images else {})
        return replies.encode(context, reply)
