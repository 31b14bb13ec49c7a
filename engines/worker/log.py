"""The log of gateway and worker: one line per record on stderr, as text or (``SIE_LOG_FORMAT=json``) as JSON."""

from __future__ import annotations

import logging
import os
import sys
import time

import msgspec

from engines.protocol.request import REQUEST


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (ISO 8601, UTC), level, logger, process, message, request, the error's trace."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        row = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if request_id := REQUEST.get():
            row["request_id"] = request_id
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(row).decode()


def configure() -> None:
    """Send ``sie.*`` at ``SIE_LOG_LEVEL`` (default info), and warnings of everything else, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get("SIE_LOG_FORMAT", "").lower() == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("sie").setLevel(os.environ.get("SIE_LOG_LEVEL", "INFO").upper())
