"""Grafana's dashboard: its panels read series and labels that gateways have."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from engines.protocol.lanes import LaneLoad
from engines.protocol.pools import PoolSpec

from .exposition import Sample, query, scrape
from .tools import DEPLOY

BOARD = json.loads((DEPLOY / "grafana" / "oasgate.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
OF_PROMETHEUS = {"job", "instance"}


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """The labels of each series by its name, of a gateway that has had some of everything."""
    samples: list[Sample] = scrape(
        LaneLoad(pool="default", machine_profile="cpu", bundle="default", open=1, queued=1, unacknowledged=0),
        pools=[PoolSpec(name="warm", gpus={"cpu": 1}, minimum_worker_count=1)],
        refused=[""],
    )
    return {sample.name: set(sample.labels) for sample in samples}


@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_a_panel_reads_series_that_exist(title: str, target: dict[str, Any], labels: dict[str, set[str]]) -> None:
    asked = query(target["expr"])
    assert asked.selectors
    for selector in asked.selectors:
        assert selector.name in labels, title
        matched = {matcher.name for matcher in selector.matchers.matchers}
        assert matched <= labels[selector.name] | OF_PROMETHEUS
        assert asked.kept <= labels[selector.name] | OF_PROMETHEUS
    shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    assert shown <= asked.kept | OF_PROMETHEUS, "a legend shows what the query keeps"


def test_counters_are_read_as_rates(labels: dict[str, set[str]]) -> None:
    for title, target in TARGETS:
        for selector in query(target["expr"]).selectors:
            if selector.name.endswith(("_total", "_bucket", "_sum", "_count")):
                before = target["expr"].partition(selector.name)[0]
                assert before.endswith("rate("), title


def test_the_variable_reads_a_series_that_exists(labels: dict[str, set[str]]) -> None:
    (job,) = [variable for variable in BOARD["templating"]["list"] if variable["type"] == "query"]
    name = re.fullmatch(r"label_values\((\w+), job\)", job["definition"])
    assert name is not None
    assert name[1] in labels


def test_panels_have_their_own_number_and_place() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
