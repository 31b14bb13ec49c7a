"""The pages that people look at: the state of the cluster at ``/`` and a playground."""

from .surface import PLAYGROUND_PATH, STATIC_PATH, PagesSurface, page

__all__ = ["PLAYGROUND_PATH", "STATIC_PATH", "PagesSurface", "page"]
