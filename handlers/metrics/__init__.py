"""What the gateway counts, and ``/metrics``, which shows it with what the workers tell of themselves."""

from .dispatch import Metered
from .registry import Metrics

__all__ = ["Metered", "Metrics"]
