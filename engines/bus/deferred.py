"""Imports that wait until they are used."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


class _Deferred(ModuleType):
    """Stands for a module in ``sys.modules`` until the first attribute of it is asked for.

    ``importlib.util.LazyLoader`` does not serve: before Python 3.12 the import statement itself asks for ``__spec__``.
    """

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def defer(name: str) -> None:
    """Make ``import name`` cost nothing until the module is used.

    Nothing happens when the module is loaded already or is not installed.
    """
    if name not in sys.modules and importlib.util.find_spec(name) is not None:
        sys.modules[name] = _Deferred(name)
