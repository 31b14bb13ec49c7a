"""Shares: how much of the gateway and its workers one caller may have, and all of them together.

A request is counted from its guard to the last byte of its answer. Its rate and its number are looked at before its
body is read, so that refusing costs next to nothing; its size once it is known.
"""

from .admitting import Admitting
from .collector import LimitsCollector
from .limiter import Lease, Limiter

__all__ = ["Admitting", "Lease", "Limiter", "LimitsCollector"]
