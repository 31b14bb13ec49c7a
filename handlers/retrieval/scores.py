"""The score result that score and rerank share."""

from __future__ import annotations

import math

from engines.protocol.events import Completed, ScoreOutput

from ..errors import Failure


def checked_scores(completed: Completed, count: int) -> ScoreOutput:
    """The scores of an answer: one finite number for each of ``count`` items.

    Raises:
        Failure: 500; the answer has no scores, another number of them, or one that is not finite.
    """
    output = completed.output
    if not isinstance(output, ScoreOutput):
        raise _malformed("the worker sent no scores")
    if len(output.scores) != count:
        raise _malformed(f"the worker sent {len(output.scores)} scores for {count} items")
    if not all(map(math.isfinite, output.scores)):
        raise _malformed("a score is not finite")
    return output


def _malformed(message: str) -> Failure:
    return Failure(500, "transport_failure", f"Malformed score result: {message}", native="INFERENCE_ERROR")
