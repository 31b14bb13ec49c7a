"""The files of ``docs/deploy/`` and the tools that read them, none of which needs a cluster, a daemon or a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
CHART = DEPLOY / "helm" / "oasgate"
LOCK = ROOT / "requirements" / "cpu.txt"

Document = dict[str, Any]


def values_files() -> dict[str, Document]:
    """Values to try the chart with, by name: the defaults, and each file of its folder ``ci``."""
    files = {path.name.removesuffix("-values.yaml"): path for path in sorted(CHART.glob("ci/*-values.yaml"))}
    return {"defaults": {}} | {name: yaml.safe_load(path.read_text()) for name, path in files.items()}


def render(values: Mapping[str, Any]) -> list[Document]:
    """What the chart makes of values, by Helm's own code.

    Raises:
        helm_python.errors.HelmError: the values break the chart's schema or its rules.
    """
    helm = import_module("helm_python.chart")
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values=dict(values), name="demo", namespace="inference")
    return [document for name, text in files.items() if name.endswith(".yaml") for document in documents(text)]


def documents(text: str) -> Iterable[Document]:
    return (document for document in yaml.safe_load_all(text) if document is not None)


def of_kind(found: Iterable[Document], kind: str, component: str = "") -> list[Document]:
    """The manifests of a kind, those of ``gateway`` or ``worker`` alone where one is named."""
    return [one for one in found if one["kind"] == kind and f"-{component}" in one["metadata"]["name"]]


def container(deployment: Document) -> Document:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def environment(deployment: Document) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(deployment)["env"]}
