"""When a gateway takes a queue for lost: its requests are then told to try again."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import nats.errors
import pytest
from nats.js.errors import NotFoundError, ServiceUnavailableError

from engines.dispatcher import rescue

CREATED = datetime(2026, 1, 1, tzinfo=UTC)


class Bus:
    """Answers each question about a stream with the next of ``answers``, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    async def stream_info(self, _stream: str) -> object:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "gone"),
    [
        ([SimpleNamespace(created=CREATED)], False),
        ([SimpleNamespace(created=datetime(2026, 1, 2, tzinfo=UTC))], True),
        ([NotFoundError()], True),
        ([nats.errors.TimeoutError(), SimpleNamespace(created=CREATED)], False),
        # an election: nobody knows, and nothing is lost
        ([ServiceUnavailableError()], False),
        ([nats.errors.NoRespondersError()], False),
    ],
)
async def test_a_queue_is_lost_when_the_bus_says_so(answers, gone, monkeypatch):
    monkeypatch.setattr(rescue, "CHECK_TRIES", 2)
    assert await rescue._is_gone(Bus(*answers), "WORK_POOL_default", CREATED) is gone
