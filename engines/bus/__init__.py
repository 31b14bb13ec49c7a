"""The message bus: NATS with JetStream, joined from outside or started as a private server on one machine."""

from .deferred import defer

# nats-py imports it for WebSocket connections: 0.15 s of a start that needs none
defer("aiohttp")
