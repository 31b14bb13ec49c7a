"""The base of every surface: a class whose methods are the operations of one group."""

from __future__ import annotations

from .services import Services


class Surface:
    """Holds the services. ``app`` combines surfaces by inheritance into one object per tag of the document."""

    def __init__(self, services: Services) -> None:
        self.services = services
