"""From an image to what a model with an image tower reads: decoded, resized, normalised, one at a time per core.

What waits are the bytes that came. A forward pass decodes its own batch, so that no more pictures are in memory than
the passes that run can hold, however many a request has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from ...protocol.events import ItemError
from ...protocol.work import Image, Item
from .. import images
from ..base import WorkError
from .loading import cores

Features = dict[str, Any]
log = logging.getLogger("sie.retrieval")

LONGEST_SIDES = 200
"""How many times longer than the other a side of an image may be."""

TOKENS = 256
"""Cost of an image where the model's configuration does not tell its patches."""

WAITING_BYTES_PER_TOKEN = 1024
"""What a large image costs while it waits, for its bytes stay in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One image as it came, not decoded yet."""

    image: Image
    wants: frozenset[str] = frozenset()

    def waiting(self) -> int:
        """Tokens that its bytes are worth."""
        return len(self.image.data) // WAITING_BYTES_PER_TOKEN


def picture_of(item: Item, wants: frozenset[str]) -> Picture | ItemError:
    """The picture of an item that has images."""
    if item.text is not None:
        return ItemError("INVALID_INPUT", "the item has a text and an image; this model reads one of them")
    if len(item.images) > 1:
        return ItemError("INVALID_INPUT", f"the item has {len(item.images)} images; this model reads one an item")
    return Picture(item.images[0], wants)


def alike(prepared: Sequence[Features | ItemError]) -> list[list[int]]:
    """Which of the pictures have tensors of the same shapes, and so fit into one batch of the model."""
    groups: dict[Any, list[int]] = {}
    for index, features in enumerate(prepared):
        if not isinstance(features, ItemError):
            shapes = tuple((name, tuple(value.shape)) for name, value in features.items() if _is_tensor(value))
            groups.setdefault(shapes, []).append(index)
    return list(groups.values())


def joined(batch: Sequence[Features], dtype: torch.dtype) -> Features:
    """Pictures of the same shapes, each a batch of one, as one batch; numbers in the model's ``dtype``."""
    features = dict(batch[0])
    for name, value in features.items():
        if _is_tensor(value):
            whole = torch.cat([picture[name] for picture in batch])
            features[name] = whole.to(dtype) if whole.is_floating_point() else whole
    return features


def patches(model: Any) -> int:
    """Positions that an image takes in the model's image tower, by its configuration."""
    vision = getattr(getattr(model[0], "config", None), "vision_config", None)
    size, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    return (size // patch) ** 2 + 1 if isinstance(size, int) and isinstance(patch, int) and patch else TOKENS


class Pictures:
    """Prepares images with ``preprocess``, the model's own. A decoded image can be hundreds of megabytes, so that only
    as many as there are cores exist at a time; what is kept of each is as small as the model's input."""

    def __init__(self, preprocess: Callable[[Any], Features]) -> None:
        self._preprocess = preprocess
        self._threads = ThreadPoolExecutor(cores(), "pictures")

    def prepared(self, batch: Sequence[Picture]) -> list[Features | ItemError]:
        """The library's tensors of each picture, or why there are none. Blocks."""
        return list(self._threads.map(self._of, batch))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _of(self, picture: Picture) -> Features | ItemError:
        try:
            return self._prepared(picture.image)
        except WorkError as error:
            return ItemError("INVALID_INPUT", error.message)

    def _prepared(self, image: Image) -> Features:
        picture = images.decode(image, "images")
        width, height = picture.size
        if max(width, height) > LONGEST_SIDES * min(width, height):
            # resized to the model's width, it would fill the memory
            raise WorkError("INVALID_INPUT", f"an image of {width} x {height} pixels is too long and narrow")
        try:
            return self._preprocess(picture)
        except (ValueError, TypeError, RuntimeError) as error:
            log.warning("an image of %d x %d pixels could not be prepared", width, height, exc_info=error)
            raise WorkError("INVALID_INPUT", f"the model cannot read an image of {width} x {height} pixels") from None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
