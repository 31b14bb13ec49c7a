"""The model catalog: YAML files of models and bundles, and their resolution. Imports no engine."""

from .catalog import Catalog, Refused, load
from .reading import CatalogError, Problem
from .reload import Reloader

__all__ = ["Catalog", "CatalogError", "Problem", "Refused", "Reloader", "load"]
