"""Inline images of a request: decoded and checked here, never fetched."""

from __future__ import annotations

import re
from typing import Final

import pybase64

from engines.protocol.work import Image

from ..errors import InvalidField

MAX_IMAGES: Final = 16
MAX_BYTES: Final = 16 * 1024 * 1024
_DATA_URI: Final = re.compile(r"data:image/([A-Za-z0-9.+-]{1,32})((?:;[A-Za-z0-9.+-]+=[^;,]*)*);base64,", re.IGNORECASE)


def from_data_uri(uri: str, param: str) -> Image:
    """The image of a ``data:image/...;base64,...`` URI.

    Raises:
        InvalidField: not such a URI, bad base64, nothing in it, or more than 16 MiB.
    """
    head = _DATA_URI.match(uri)
    if head is None:
        if uri[:5].lower() == "data:":
            raise InvalidField(param, "An inline image must be a 'data:image/...;base64,' URI")
        raise InvalidField(param, "Remote images are not fetched; send a 'data:image/...;base64,' URI")
    return Image(data=decode(uri[head.end() :], param), format=head[1].lower(), param=param)


def decode(text: str, param: str) -> bytes:
    """Bytes of standard base64.

    Raises:
        InvalidField: not base64, empty, or more than 16 MiB.
    """
    if len(text) > MAX_BYTES // 3 * 4 + 4:
        raise InvalidField(param, f"The image is larger than {MAX_BYTES} bytes")
    try:
        data = pybase64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidField(param, "The image is not valid base64") from None
    if not data:
        raise InvalidField(param, "The image is empty")
    if len(data) > MAX_BYTES:
        raise InvalidField(param, f"The image is larger than {MAX_BYTES} bytes")
    return data
