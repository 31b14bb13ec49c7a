"""``litestar worker``: a worker for a cluster whose bus is named by ``SIE_NATS_URL``."""

from __future__ import annotations

import sys

import click
from litestar.plugins import CLIPlugin

from . import main


class WorkerCLI(CLIPlugin):
    """Adds the command to the ``litestar`` tool; hand it to ``Litestar(plugins=[WorkerCLI()])``."""

    def on_cli_init(self, cli: click.Group) -> None:
        cli.add_command(worker)


@click.command(help="Run one inference worker on the bus that SIE_NATS_URL names, until SIGTERM or Ctrl-C.")
@click.option("--name", default="", help="Unique among the workers; default: host name and a suffix.")
@click.option("--pool", default="default", show_default=True)
@click.option("--machine-profile", default="", help="Default: gpu where there is one, else cpu.")
@click.option("--bundle", default="default", show_default=True)
@click.option("--models", default="", help="Comma list of models to load at the start.")
@click.option("--max-inflight", default=512, show_default=True, help="Requests taken from the queue at a time.")
@click.option("--drain", default=20.0, show_default=True, help="Seconds that running requests get after SIGTERM.")
@click.option("--memory-budget", default=0, help="Bytes that loaded models may take; 0: no limit.")
@click.option("--kv-budget", default=0, help="Tokens of generations taken at a time; 0: by the engines' caches.")
def worker(**given: object) -> None:
    arguments: list[str] = []
    for name, value in given.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    sys.exit(main.serve(main.options(arguments)))
