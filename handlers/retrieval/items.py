"""Inputs of the native operations: from the wire to work items, and the options beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pybase64
from msgspec import UNSET, UnsetType

from engines.protocol.catalog import ModelEntry
from engines.protocol.work import Image, Item
from generated.sie import models

from ..errors import InvalidField, InvalidInput

T = TypeVar("T")


def given(value: T | UnsetType | None) -> T | None:
    """A field's value; ``None`` when it was absent or null, which mean the same."""
    return None if value is UNSET else value


def items(inputs: Sequence[models.ItemInput], model: ModelEntry) -> list[Item]:
    """Work items of a request's ``items``, in order.

    Raises:
        InvalidField: media data that is neither bytes, base64 nor a list of byte values.
        InvalidInput: media that the model does not take.
    """
    return [item(value, f"items[{index}]", model) for index, value in enumerate(inputs)]


def item(value: models.ItemInput, path: str, model: ModelEntry) -> Item:
    """One work item; ``path`` names it in errors. ``metadata`` is the caller's own and stays here.

    Raises:
        InvalidField, InvalidInput: as ``items``.
    """
    for kind in ("audio", "video", "documents", "multivector"):
        if given(getattr(value, kind)) is not None:
            raise InvalidInput(f"{path}.{kind} is not supported by this server", f"{path}.{kind}")
    images = [
        Image(data=media(image.data, f"{path}.images[{index}].data"), format=given(image.format))
        for index, image in enumerate(given(value.images) or ())
    ]
    document = given(value.document)
    if images and "image" not in model.inputs:
        raise InvalidInput(f"{path}.images: model '{model.name}' takes no images", f"{path}.images")
    if document is not None and "document" not in model.inputs:
        raise InvalidInput(f"{path}.document: model '{model.name}' takes no documents", f"{path}.document")
    return Item(
        id=given(value.id),
        text=given(value.text),
        images=images,
        document=None if document is None else media(document.data, f"{path}.document.data"),
        document_format=None if document is None else given(document.format),
    )


def media(value: object, path: str) -> bytes:
    """Bytes of an image or a document: MessagePack binary, base64 text (standard alphabet), or a list of byte values.

    Raises:
        InvalidField: the value is none of these, or empty.
    """
    data = _media(value, path)
    if not data:
        raise InvalidField(path, f"{path} is empty")
    return data


def _media(value: object, path: str) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            try:
                return pybase64.b64decode(value, validate=True)
            except ValueError:
                raise InvalidField(path, f"{path} is not valid base64") from None
        case list():
            try:
                return bytes(value)
            except (ValueError, TypeError):
                raise InvalidField(path, f"{path} must hold integers from 0 to 255") from None
    raise InvalidField(path, f"{path} must be bytes, base64 text or an array of byte values")


def options(value: object, path: str) -> dict[str, Any]:
    """The free-form options as a new dict without null members; absent and null are empty.

    Raises:
        InvalidField: not an object.
    """
    if value is UNSET or value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidField(path, f"{path} must be an object or null")
    return {key: member for key, member in value.items() if member is not None}


def take_text(options: dict[str, Any], key: str, path: str) -> str | None:
    """Remove a text option and return it.

    Raises:
        InvalidInput: it is not text, or blank.
    """
    value = options.pop(key, None)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{path}.{key} must be a non-blank string", f"{path}.{key}")
    return value


def take_flag(options: dict[str, Any], key: str, path: str) -> bool | None:
    """Remove a boolean option and return it.

    Raises:
        InvalidInput: it is not a boolean.
    """
    value = options.pop(key, None)
    if value is not None and not isinstance(value, bool):
        raise InvalidInput(f"{path}.{key} must be a boolean", f"{path}.{key}")
    return value


def take_length(options: dict[str, Any], key: str, path: str) -> int | None:
    """Remove an option that is a positive number of tokens and return it; 12.0 is 12.

    Raises:
        InvalidInput: it is not a positive integer.
    """
    value = options.pop(key, None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31):
        raise InvalidInput(f"{path}.{key} must be a positive integer", f"{path}.{key}")
    return value
