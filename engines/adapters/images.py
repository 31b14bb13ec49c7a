"""Decodes the images of requests, checking kind and size before any pixel is unpacked."""

from __future__ import annotations

import io
import warnings

from PIL import Image as Pillow

from ..protocol.work import Image
from .base import WorkError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_BYTES = 16 * 1024 * 1024
MAX_PIXELS = 64_000_000


def decode(image: Image, param: str) -> Pillow.Image:
    """An RGB picture.

    Raises:
        WorkError: ``invalid_request`` for ``param``: no image, a kind that is not taken, or too large.
    """
    if len(image.data) > MAX_BYTES:
        raise WorkError("invalid_request", f"an image has more than {MAX_BYTES} bytes", param=param)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            picture: Pillow.Image = Pillow.open(io.BytesIO(image.data), formats=FORMATS)
    except Pillow.DecompressionBombError:
        raise WorkError("invalid_request", "an image has too many pixels", param=param) from None
    except Exception:
        raise WorkError("invalid_request", f"an image is none of {', '.join(FORMATS)}", param=param) from None
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise WorkError("invalid_request", f"an image of {width} x {height} pixels is too large", param=param)
    try:
        picture.load()
        # transparent parts become white, as on a page
        if picture.mode in ("RGBA", "LA", "P"):
            picture = picture.convert("RGBA")
            page = Pillow.new("RGBA", picture.size, "white")
            page.alpha_composite(picture)
            picture = page
        return picture.convert("RGB")
    except Exception as error:
        raise WorkError("invalid_request", f"an image is damaged: {error}", param=param) from None
