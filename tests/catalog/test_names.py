"""From a model argument to a model, a profile and a bundle (contract H.4)."""

from __future__ import annotations

import pytest

from engines.catalog import Catalog
from engines.protocol.catalog import (
    Bundle,
    BundleConflict,
    ModelEntry,
    Profile,
    UnknownBundle,
    UnknownModel,
    UnknownProfile,
)

DENSE = "engines.adapters.retrieval.sentence_transformer"
CROSS = "engines.adapters.retrieval.cross_encoder"


def entry(name: str, module: str = DENSE, *profiles: str) -> ModelEntry:
    made = {
        profile: Profile(name=profile, engine="sentence_transformer", adapter_path=f"{module}:Engine", source=name)
        for profile in ("default", *profiles)
    }
    return ModelEntry(name=name, profiles=made)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(
        [entry("BAAI/bge-m3", DENSE, "Fast"), entry("x/reranker", CROSS), entry("code")],
        [
            Bundle(name="late", engine="native", adapters=(DENSE,), priority=20),
            Bundle(name="early", engine="native", adapters=(DENSE, "other"), priority=10),
            Bundle(name="also-early", engine="native", adapters=(DENSE,), priority=10),
            Bundle(name="scores", engine="native", adapters=(CROSS,)),
        ],
        {"mini": "baai/bge-m3", "pinned": "late:/BAAI/bge-m3", "quick": "BAAI/bge-m3:fast", "Nowhere": "x/nothing"},
    )


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("BAAI/bge-m3", ("BAAI/bge-m3", "default", "also-early")),
        ("baai/BGE-M3", ("BAAI/bge-m3", "default", "also-early")),
        ("BAAI__bge-m3", ("BAAI/bge-m3", "default", "also-early")),
        ("BAAI/bge-m3:fast", ("BAAI/bge-m3", "Fast", "also-early")),
        ("baai__bge-m3:FAST", ("BAAI/bge-m3", "Fast", "also-early")),
        ("BAAI/bge-m3:default", ("BAAI/bge-m3", "default", "also-early")),
        ("late:/BAAI/bge-m3", ("BAAI/bge-m3", "default", "late")),
        ("LATE:/BAAI/bge-m3:fast", ("BAAI/bge-m3", "Fast", "late")),
        ("mini", ("BAAI/bge-m3", "default", "also-early")),
        ("MINI:fast", ("BAAI/bge-m3", "Fast", "also-early")),
        ("pinned", ("BAAI/bge-m3", "default", "late")),
        ("early:/pinned", ("BAAI/bge-m3", "default", "early")),
        ("quick", ("BAAI/bge-m3", "Fast", "also-early")),
        ("quick:default", ("BAAI/bge-m3", "default", "also-early")),
        ("code", ("code", "default", "also-early")),
        ("x/reranker", ("x/reranker", "default", "scores")),
    ],
)
def test_a_name_leads_to_its_model(catalog, argument, expected):
    found = catalog.resolve(argument)
    assert (found.model.name, found.profile.name, found.bundle) == expected


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("", UnknownModel),
        (":", UnknownModel),
        ("x/nothing", UnknownModel),
        ("x/nothing:fast", UnknownModel),
        ("nowhere", UnknownModel),
        ("sql", UnknownModel),
        ("BAAI/bge-m3:slow", UnknownProfile),
        ("mini:slow", UnknownProfile),
        ("none:/BAAI/bge-m3", UnknownBundle),
        ("scores:/BAAI/bge-m3", BundleConflict),
        ("none:/x/nothing", UnknownModel),
    ],
)
def test_a_name_that_leads_nowhere_says_which_part(catalog, argument, error):
    with pytest.raises(error):
        catalog.resolve(argument)


def test_a_bundle_conflict_lists_the_bundles_that_fit(catalog):
    with pytest.raises(BundleConflict) as conflict:
        catalog.resolve("scores:/BAAI/bge-m3")
    assert conflict.value.compatible == ("also-early", "early", "late")


def test_models_and_bundles_are_sorted_and_know_each_other(catalog):
    assert [model.name for model in catalog.models()] == ["BAAI/bge-m3", "code", "x/reranker"]
    assert [bundle.name for bundle in catalog.bundles()] == ["also-early", "early", "late", "scores"]
    assert catalog.models()[0].bundles == ("also-early", "early", "late")


def test_a_model_that_no_bundle_runs_is_a_conflict():
    catalog = Catalog([entry("lonely")], [])
    with pytest.raises(BundleConflict):
        catalog.resolve("lonely")


def test_the_hash_of_a_bundle_changes_with_what_its_workers_run(catalog):
    assert len(catalog.bundle_config_hash("late")) == 64
    assert catalog.bundle_config_hash("late") == catalog.bundle_config_hash("early")
    assert catalog.bundle_config_hash("late") != catalog.bundle_config_hash("scores")
    changed = Catalog([entry("BAAI/bge-m3", DENSE, "Slow"), entry("code")], catalog.bundles())
    assert changed.bundle_config_hash("late") != catalog.bundle_config_hash("late")
    same = Catalog([entry("code"), entry("BAAI/bge-m3", DENSE, "Fast")], catalog.bundles())
    assert same.bundle_config_hash("late") == catalog.bundle_config_hash("late")
