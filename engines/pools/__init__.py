"""Pools in a NATS key-value bucket: one truth for all gateways, which workers read too."""

from __future__ import annotations

from .bucket import Bucket
from .store import NatsPools

__all__ = ["Bucket", "NatsPools"]
