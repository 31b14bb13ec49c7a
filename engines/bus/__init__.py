"""The message bus: NATS with JetStream, joined from outside or started as a private server on one machine."""
