"""Three gateways, four workers and three NATS nodes under load, while workers die, links are cut and nodes restart."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from handlers.http.access import Line

from .chaos import faults, inflict
from .questions import Asker, Outcome, questions
from .testbed import Testbed

SEED = 20261129
REQUESTS = 10_000
RATE = 110.0
"""Requests that begin in a second, whatever becomes of those before them."""
OPEN = 600
"""Most requests that are open at a time."""
LIMIT_S = 60.0
SETTINGS = {
    "SIE_GATEWAY_REQUEST_TIMEOUT": "20",
    "SIE_GATEWAY_OVERALL_TIMEOUT_S": "20",
    "SIE_LOAD_PATIENCE_S": "5",
}


@pytest.mark.timeout(600)
async def test_every_request_ends_in_a_right_answer_or_in_a_declared_error(tmp_path: Path) -> None:
    asked = questions(SEED, REQUESTS)
    bed = Testbed(tmp_path, settings=SETTINGS)
    try:
        await bed.start()
        outcomes = await load(bed, asked)
    finally:
        statuses = await bed.stop()
    report(bed, outcomes)
    assert [outcome for outcome in outcomes if outcome.verdict == "fault"] == [], bed.tail()
    assert len(outcomes) == len({outcome.question.number for outcome in outcomes}) == REQUESTS
    answered_once(bed, outcomes)
    # faults are brief: on a busy machine too, most is answered
    assert sum(outcome.verdict == "right" for outcome in outcomes) > 0.8 * REQUESTS
    assert set(statuses.values()) == {0, -signal.SIGTERM}, statuses


async def load(bed: Testbed, asked: list) -> list[Outcome]:
    """Ask everything at a steady rate while one fault follows another."""
    outcomes: list[Outcome] = []
    places = asyncio.Semaphore(OPEN)
    loop = asyncio.get_running_loop()

    async with Asker(bed.urls(), LIMIT_S) as asker, asyncio.TaskGroup() as group:

        async def one(question) -> None:
            outcomes.append(await asker.ask(question))
            places.release()

        plan = faults(SEED, bed)
        chaos = group.create_task(inflict(bed, plan, lambda: len(outcomes) / len(asked), print))
        began = loop.time()
        for number, question in enumerate(asked):
            await asyncio.sleep(began + number / RATE - loop.time())
            await places.acquire()
            group.create_task(one(question))
        await chaos
    return outcomes


def report(bed: Testbed, outcomes: list[Outcome]) -> None:
    """Print the counts."""
    for kind in ("chat", "stream", "embeddings", "rerank"):
        counts = Counter(outcome.verdict for outcome in outcomes if outcome.question.kind == kind)
        print(f"{kind:>11}: {counts.total():5} asked, {', '.join(f'{n} {what}' for what, n in counts.most_common())}")
    details = Counter(f"{o.verdict} ({o.detail[:60]})" for o in outcomes if o.verdict != "right")
    print(f"{'all':>11}: {len(outcomes)} asked, {sum(o.verdict == 'right' for o in outcomes)} right")
    for detail, count in details.most_common():
        print(f"{count:>11}  {detail}")
    runs = Counter(bed.runs.read_text().split())
    print(f"{'engines':>11}: {runs.total()} runs, {sum(count > 1 for count in runs.values())} requests more than once")


def answered_once(bed: Testbed, outcomes: list[Outcome]) -> None:
    """The gateways have ended each request once, under the id and with the status that its caller got."""
    decode = msgspec.json.Decoder(Line).decode
    logged: dict[str, Line] = {}
    for gateway in bed.gateways:
        for text in gateway.log.read_bytes().splitlines():
            if text.startswith(b'{"time"') and b'"method":"POST"' in text:
                line = decode(text)
                assert line.request_id not in logged, f"answered twice: {line}"
                logged[line.request_id] = line
    assert len(logged) == len(outcomes)
    known = [outcome for outcome in outcomes if outcome.request_id]
    assert len({outcome.request_id for outcome in known}) == len(known)
    for outcome in known:
        status = 200 if outcome.verdict in ("right", "broken") else int(outcome.detail.split()[0])
        assert logged[outcome.request_id].status == status, outcome
