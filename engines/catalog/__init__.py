"""The model catalog: YAML files of models and bundles, and their resolution. Imports no engine."""

from .catalog import Catalog, Refused, load
from .reading import CatalogError, Problem

__all__ = ["Catalog", "CatalogError", "Problem", "Refused", "load"]
