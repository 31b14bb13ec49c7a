"""A module that is slow to import and seldom used is imported when it is used."""

from __future__ import annotations

import subprocess
import sys


def outcome(code: str) -> str:
    """Run ``code`` in a fresh interpreter and return what it printed."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_bus_does_not_load_aiohttp_until_it_is_asked_for() -> None:
    code = "import sys, nats, engines.bus, nats.aio.client; print('aiohttp.client' in sys.modules)"
    assert outcome(code.replace("nats, engines.bus", "engines.bus")) == "False"
    assert outcome(code) == "True"  # the test can fail


def test_a_deferred_module_is_the_module_itself_once_used() -> None:
    code = (
        "import engines.bus, aiohttp; name = aiohttp.ClientSession.__name__; import aiohttp.web; "
        "from aiohttp import ClientTimeout; print(name, aiohttp.web.Application.__name__, ClientTimeout.__name__)"
    )
    assert outcome(code) == "ClientSession Application ClientTimeout"


def test_what_is_not_installed_stays_an_import_error() -> None:
    code = "from engines.bus.deferred import defer; defer('nowhere')"
    code += "\ntry: import nowhere\nexcept ImportError: print('ok')"
    assert outcome(code) == "ok"
