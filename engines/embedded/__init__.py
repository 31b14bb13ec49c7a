"""Small real models that come as ordinary packages, so that a first run needs no network.

A ``package:`` source names one of them: ``package:smollm2-135m-instruct``. Its files are found through the metadata of
the package that carries them (which is never imported), and, where they are in a form that no engine loads, prepared
once into the cache directory.
"""

from .sources import PREFIX, ModelFilesMissing, is_package, locate, prepare

__all__ = ["PREFIX", "ModelFilesMissing", "is_package", "locate", "prepare"]
