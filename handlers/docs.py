"""The document and the page that shows it, without any request to another host."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from generated.sie import operations
from generated.sie.interfaces import Context

from .errors import Failure
from .surface import Surface

SCRIPT_PATH: Final = "/docs/redoc.standalone.js"
_PACKAGE: Final = "drf-spectacular-sidecar"
_BUNDLE: Final = "drf_spectacular_sidecar/static/drf_spectacular_sidecar/redoc/bundles/redoc.standalone.js"
_BADGE: Final = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
# a transparent pixel: nothing on this page comes from another host, so the policy would block the badge with an error
_PIXEL: Final = b"data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
_PAGE: Final = Path(__file__).with_name("reference.html").read_bytes()
# Redoc writes its style sheets as it renders, and searches in a worker; the page's own script is known by its digest.
_POLICY: Final = (
    "default-src 'none'; script-src 'self' {script}; style-src 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@cache
def policy() -> str:
    """The content security policy of the page."""
    script = _PAGE.partition(b"<script>")[2].partition(b"</script>")[0]
    return _POLICY.format(script=f"'sha256-{b64encode(sha256(script).digest()).decode()}'")


@cache
def document() -> bytes:
    """The effective document, byte for byte."""
    return Path(operations.DOCUMENT).read_bytes()


@cache
def script() -> tuple[bytes, str]:
    """Redoc's bundle from the installed package, and its entity tag. The package is located, not imported.

    Raises:
        Failure: 500, the package is not installed.
    """
    try:
        path = Path(str(distribution(_PACKAGE).locate_file(_BUNDLE)))
        content = path.read_bytes().replace(_BADGE, _PIXEL)
    except (PackageNotFoundError, OSError):
        raise Failure(500, "inference_error", f"The package {_PACKAGE} is not installed") from None
    return content, f'"{sha256(content).hexdigest()[:32]}"'


class DocsSurface(Surface):
    """``/openapi.json``, ``/docs`` and the script of the page."""

    async def openapi_json(self, context: Context) -> bytes:
        """The document that this server honours."""
        return document()

    async def docs_ui(self, context: Context) -> bytes:
        """A page that renders the document with Redoc, in the light or the dark theme as the system prefers."""
        context.media_type = "text/html; charset=utf-8"
        context.response_headers["content-security-policy"] = policy()
        context.response_headers["x-content-type-options"] = "nosniff"
        return _PAGE

    async def docs_script(self, context: Context) -> bytes:
        """Redoc itself; not in the document, as the page is."""
        content, tag = script()
        context.response_headers["cache-control"] = "public, max-age=86400"
        context.response_headers["x-content-type-options"] = "nosniff"
        context.response_headers["etag"] = tag
        if context.header("if-none-match") == tag:
            context.status = 304
            return b""
        context.media_type = "text/javascript; charset=utf-8"
        return content
