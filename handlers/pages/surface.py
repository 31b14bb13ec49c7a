"""Pages and their parts, from files beside this module. A page holds no data: it asks for it, with a token."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from generated.sie.interfaces import Context

from ..errors import Failure
from ..surface import Surface

PLAYGROUND_PATH: Final = "/playground"
STATIC_PATH: Final = "/static/{name:str}"
_FOLDER: Final = Path(__file__).parent / "static"
_MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


@cache
def files() -> dict[str, tuple[bytes, str, str]]:
    """Every static file by name: its content, media type and entity tag. What is not in here cannot be asked for."""
    found = {}
    for path in sorted(_FOLDER.iterdir()):
        content = path.read_bytes()
        found[path.name] = content, _MEDIA[path.suffix], f'"{sha256(content).hexdigest()[:32]}"'
    return found


def page(name: str) -> tuple[bytes, dict[str, str]]:
    """A page that asks for a token first, and its headers, for an answer that is made elsewhere."""
    content, media, _ = files()[name]
    return _told(content, "token"), {"content-type": media, **_headers()}


def _told(content: bytes, auth: str) -> bytes:
    """A page that knows whether its requests need a token, so that it makes none only to be refused."""
    return content.replace(b'<html lang="en">', b'<html lang="en" data-auth="%s">' % auth.encode(), 1)


def _headers() -> dict[str, str]:
    return {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }


class PagesSurface(Surface):
    """``/``, ``/playground`` and ``/static/*``."""

    async def status_page(self, context: Context) -> bytes:
        """Workers, models, pools and load, live over ``/ws/cluster-status``."""
        settings = self.services.settings
        auth = "none" if settings.auth_mode == "none" else "exempt" if settings.auth_exempt_operational else "token"
        return _told(self._file(context, "status.html", revalidate=False), auth)

    async def playground(self, context: Context) -> bytes:
        """Chat, embeddings and rerank to try out."""
        auth = "none" if self.services.settings.auth_mode == "none" else "token"
        return _told(self._file(context, "playground.html", revalidate=False), auth)

    async def static(self, context: Context, name: str) -> bytes:
        """A style sheet, a script or the icon.

        Raises:
            Failure: 404.
        """
        return self._file(context, name)

    def _file(self, context: Context, name: str, *, revalidate: bool = True) -> bytes:
        """A file, or with ``revalidate`` 304 for who has it already."""
        known = files().get(name)
        if known is None:
            raise Failure(404, "not_found", f"No file {name!r}")
        content, media, tag = known
        context.response_headers |= _headers()
        context.media_type = media
        if revalidate:
            context.response_headers["etag"] = tag
            if context.header("if-none-match") == tag:
                context.status = 304
                return b""
        return content
