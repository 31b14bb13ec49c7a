"""``litestar models``: what the catalog has, whether its files are good, and the weights behind them."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from litestar.plugins import CLIPlugin

from engines.catalog import Catalog, CatalogError
from engines.protocol.catalog import ModelEntry, Profile, Resolved, UnknownModel, variant

PACKAGE = "package:"


class ModelsCLI(CLIPlugin):
    """Adds the commands to the ``litestar`` tool; hand it to ``Litestar(plugins=[ModelsCLI()])``."""

    def on_cli_init(self, cli: click.Group) -> None:
        cli.add_command(models)


@click.group(help="The models of the catalog: list, check, pull, remove, try.")
def models() -> None:
    """The commands below."""


@models.command("list", help="List the models that can be served, and where their weights are.")
def list_models() -> None:
    rows = [("MODEL", "TASKS", "ENGINE", "WEIGHTS")]
    for entry in _catalog().models():
        for name, profile in _variants(entry):
            rows.append((name, ",".join(entry.tasks), profile.engine, _weights(entry, profile)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@models.command(help="Read every file of the catalog; exit with 1 when one is malformed.")
@click.option("--strict", is_flag=True, help="Also when a well-formed model cannot be served.")
def check(strict: bool) -> None:
    found = _catalog()
    bad = [one for one in found.refused if one.malformed]
    left = [one for one in found.refused if not one.malformed]
    for one in bad:
        click.echo(f"malformed  {one.reason}")
    for one in left:
        click.echo(f"refused    {one.name} ({one.file}): {one.reason}")
    click.echo(f"{len(found.models())} models can be served, {len(left)} refused, {len(bad)} malformed")
    sys.exit(1 if bad or (strict and left) else 0)


@models.command(help="Download the weights of models from the hub, with progress.")
@click.argument("names", nargs=-1, required=True, metavar="MODEL...")
def pull(names: Sequence[str]) -> None:
    failed = [name for name in names if not _pull(*_find(_catalog(), name))]
    sys.exit(1 if failed else 0)


@models.command(help="Delete the downloaded weights of models from the hub's cache.")
@click.argument("names", nargs=-1, required=True, metavar="MODEL...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(names: Sequence[str], yes: bool) -> None:
    for name in names:
        entry, profile = _find(_catalog(), name)
        if not _on_hub(profile):
            click.echo(f"{entry.name}: its weights are {_weights(entry, profile)}; there is nothing to remove")
            continue
        revisions, size = _cached(profile.source)
        if not revisions:
            click.echo(f"{entry.name}: not downloaded")
        elif yes or click.confirm(f"{entry.name}: delete {size} of {profile.source}?"):
            from huggingface_hub import scan_cache_dir

            scan_cache_dir().delete_revisions(*revisions).execute()
            click.echo(f"{entry.name}: removed {size}")


@models.command("try", help="Start a worker, run one request, print what comes back.")
@click.argument("name", metavar="MODEL")
@click.argument("text")
@click.option("--max-tokens", default=64, show_default=True, help="Of a generation.")
@click.option("--label", "labels", multiple=True, help="Of an extraction; may be given more than once.")
def try_model(name: str, text: str, max_tokens: int, labels: Sequence[str]) -> None:
    # the bus and arrays, which the other commands do without
    from .attempt import attempt, work_for

    found = _resolve(_catalog(), name)
    work = work_for(found, text, max_tokens, list(labels), uuid.uuid4().hex)
    if work is None:
        where = "; POST /v1/audio/transcriptions takes its audio" if "transcribe" in found.model.tasks else ""
        raise click.ClickException(f"{found.model.name} takes no text{where}")
    sys.exit(asyncio.run(attempt(found, work)))


def _catalog() -> Catalog:
    try:
        return Catalog.from_env()
    except CatalogError as error:
        raise click.ClickException(str(error)) from None


def _resolve(catalog: Catalog, name: str) -> Resolved:
    try:
        return catalog.resolve(name)
    except UnknownModel as error:
        raise click.ClickException(f"{error.args[0]}; `litestar models list` shows what there is") from None
    except LookupError as error:
        raise click.ClickException(str(error.args[0])) from None


def _find(catalog: Catalog, name: str) -> tuple[ModelEntry, Profile]:
    found = _resolve(catalog, name)
    return found.model, found.profile


def _variants(entry: ModelEntry) -> list[tuple[str, Profile]]:
    names = sorted(entry.profiles, key=lambda name: (name != "default", name))
    return [(variant(entry.name, name), entry.profiles[name]) for name in names]


def _on_hub(profile: Profile) -> bool:
    return not profile.source.startswith(PACKAGE) and not Path(profile.source).exists()


def _weights(entry: ModelEntry, profile: Profile) -> str:
    """Where the weights are, in words."""
    if profile.source.startswith(PACKAGE):
        return f"in the package {profile.source.removeprefix(PACKAGE)}"
    if not _on_hub(profile):
        return f"in {profile.source}"
    revisions, size = _cached(profile.source)
    return f"downloaded, {size}" if revisions else "not downloaded"


def _cached(repository: str) -> tuple[list[str], str]:
    """Revisions of a repository in the hub's cache, and their size in words."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return [], ""
    for found in repositories:
        if found.repo_id == repository and found.repo_type == "model":
            return [revision.commit_hash for revision in found.revisions], found.size_on_disk_str
    return [], ""


def _pull(entry: ModelEntry, profile: Profile) -> bool:
    if not _on_hub(profile):
        click.echo(f"{entry.name}: its weights are {_weights(entry, profile)}; there is nothing to pull")
        return True
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        click.echo(f"{entry.name}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it to pull", err=True)
        return False
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    click.echo(f"{entry.name}: pulling {profile.source}{f' at {entry.revision}' if entry.revision else ''}")
    try:
        path: Any = snapshot_download(profile.source, revision=entry.revision)
    except (LocalEntryNotFoundError, httpx.TransportError) as error:
        host = os.environ.get("HF_ENDPOINT") or "the hub"
        click.echo(f"{entry.name}: {host} cannot be reached, or broke off ({_reason(error)})", err=True)
        click.echo("Check the network, or HF_ENDPOINT for a mirror; files that came whole are kept", err=True)
        return False
    except HfHubHTTPError as error:
        click.echo(f"{entry.name}: the hub refused {profile.source}: {_refusal(entry, error)}", err=True)
        return False
    except OSError as error:
        click.echo(f"{entry.name}: cannot be kept: {error}", err=True)
        return False
    click.echo(f"{entry.name}: in {path}")
    return True


def _refusal(entry: ModelEntry, error: Any) -> str:
    """Why the hub refused, in words."""
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    if isinstance(error, RevisionNotFoundError):
        return f"it has no revision {entry.revision}"
    if isinstance(error, GatedRepoError):
        return "its licence must be accepted on the hub, and a token given (HF_TOKEN)"
    status = error.response.status_code
    known = {401: "it is not there, or a token is needed (HF_TOKEN)", 403: "the token may not", 404: "it is not there"}
    return known.get(status, f"status {status}")


def _reason(error: BaseException) -> str:
    """The first line of the error beneath the others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).splitlines()), "") or type(error).__name__
