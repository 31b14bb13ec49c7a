"""Dispatcher, private nats-server and worker process together, with scripted engines."""

from __future__ import annotations

from engines.protocol.events import Admitted, Completed, Delta

from .conftest import ask


async def test_a_stream_arrives_in_order_and_ends_with_usage(cluster_of):
    async with cluster_of() as cluster:
        first, *deltas, last = await ask(cluster, "echo:50")
        assert isinstance(first, Admitted)
        assert first.prompt_tokens == 3
        assert "".join(event.text for event in deltas if isinstance(event, Delta)).split() == [
            str(n) for n in range(50)
        ]
        assert isinstance(last, Completed)
        assert last.usage.completion_tokens == 50
        assert last.worker == first.worker
        assert cluster.dispatcher.pending == 0
