"""From an image to what a model with an image tower reads: decoded, resized, normalised, one at a time per core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...protocol.events import ItemError
from ...protocol.work import Item
from .. import images
from ..base import WorkError
from .loading import cores

Features = dict[str, Any]
log = logging.getLogger("sie.retrieval")

LONGEST_SIDES = 200
"""How many times longer than the other a side of an image may be."""

TOKENS = 256
"""Cost of an image where the model's configuration does not tell its patches."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One image as the library's tensors, each a batch of one."""

    features: Features
    wants: frozenset[str] = frozenset()

    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What pictures of one batch have in common."""
        return tuple((name, tuple(value.shape)) for name, value in self.features.items() if _is_tensor(value))


def joined(batch: Sequence[Picture], dtype: torch.dtype) -> Features:
    """The features of a batch of pictures of the same shapes; numbers in the model's ``dtype``."""
    features = dict(batch[0].features)
    for name, value in features.items():
        if _is_tensor(value):
            whole = torch.cat([picture.features[name] for picture in batch])
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
        self._turns = asyncio.Semaphore(cores())

    async def of(self, item: Item, wants: frozenset[str]) -> Picture | ItemError:
        """The picture of an item that has images."""
        if item.text is not None:
            return ItemError("INVALID_INPUT", "the item has a text and an image; this model reads one of them")
        if len(item.images) > 1:
            return ItemError("INVALID_INPUT", f"the item has {len(item.images)} images; this model reads one an item")
        async with self._turns:
            try:
                return Picture(await asyncio.to_thread(self._prepared, item), wants)
            except WorkError as error:
                return ItemError("INVALID_INPUT", error.message)

    def _prepared(self, item: Item) -> Features:
        picture = images.decode(item.images[0], "images")
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
