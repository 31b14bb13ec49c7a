"""One row per operation, status and rule of contract J."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from engines.catalog import Catalog
from engines.protocol.catalog import Bundle, ModelEntry, Profile
from generated.sie import models
from tests.pools.fakes import World, worker

DENSE, CROSS = "engines.adapters.retrieval.sentence_transformer", "engines.adapters.retrieval.cross_encoder"


def entry(name: str, module: str, *profiles: str) -> ModelEntry:
    made = {
        profile: Profile(name=profile, engine="sentence_transformer", adapter_path=f"{module}:Engine", source=name)
        for profile in ("default", *profiles)
    }
    return ModelEntry(name=name, profiles=made)


def catalog() -> Catalog:
    return Catalog(
        [entry("Org/vectors", DENSE, "fast", "also"), entry("org/status", CROSS), entry("alone", "no.bundle")],
        [
            Bundle(name="late", engine="native", adapters=(DENSE, "x"), priority=20, source="filesystem"),
            Bundle(name="early", engine="native", adapters=(DENSE,), priority=10),
            Bundle(name="scores", engine="native", adapters=(CROSS,)),
        ],
        {"vec": "org/vectors", "pinned": "late:/org/vectors"},
    )


class Row(NamedTuple):
    """A request, its status and either its code or its whole body."""

    rule: str
    method: str
    path: str
    status: int
    answer: Any = None
    body: Any = None
    token: str = "t"
    settings: dict[str, Any] = {}  # noqa: RUF012  # a named tuple copies nothing, and no row changes it
    media: str = "application/json"


MODELS, BUNDLES, RESOLVE = "/v1/configs/models", "/v1/configs/bundles", "/v1/configs/resolve"
VECTORS = {"sie_id": "Org/vectors", "source": "gateway-registry", "bundles": ["early", "late"]}
RESOLVED = {
    "model": "Org/vectors",
    "resolved_bundle": "early",
    "compatible_bundles": ["early", "late"],
    "profiles": ["also", "default", "fast"],
}


def resolve(rule: str, status: int, answer: Any, body: Any, token: str = "boss") -> Row:
    return Row(rule, "POST", RESOLVE, status, answer, body, token)


NO_TOKENS: dict[str, Any] = {"auth_tokens": ()}
READS = (MODELS, f"{MODELS}/Org/vectors", f"{MODELS}/Org/vectors/status", BUNDLES, f"{BUNDLES}/late")


ROWS = [
    *(
        Row("auth without tokens", "GET", path, 500, "GATEWAY_AUTH_MISCONFIGURED", settings=NO_TOKENS)
        for path in READS
    ),
    Row("models, sorted by name", "GET", MODELS, 200, {"models": [
        {"model_id": "Org/vectors", "profiles": ["also", "default", "fast"], "source": "gateway-registry"},
        {"model_id": "alone", "profiles": ["default"], "source": "gateway-registry"},
        {"model_id": "org/status", "profiles": ["default"], "source": "gateway-registry"},
    ]}),
    Row("models need a token", "GET", MODELS, 401, "UNAUTHORIZED", token=""),
    Row("models are not opened by the admin token", "GET", MODELS, 401, "UNAUTHORIZED", token="boss"),
    Row("no write", "POST", MODELS, 405, "METHOD_NOT_ALLOWED", {}, token="boss"),
    Row("a model", "GET", f"{MODELS}/Org/vectors", 200, VECTORS),
    Row("a model, encoded slash", "GET", f"{MODELS}/Org%2Fvectors", 200, VECTORS),
    Row("a model in any case", "GET", f"{MODELS}/org__VECTORS", 200, VECTORS),
    Row("a model by alias", "GET", f"{MODELS}/vec", 200, VECTORS),
    Row("an unknown model", "GET", f"{MODELS}/no/such", 404, "MODEL_NOT_FOUND"),
    Row("a model needs a token", "GET", f"{MODELS}/Org/vectors", 401, "UNAUTHORIZED", token=""),
    Row("a model that is called status", "GET", f"{MODELS}/org/status", 200,
        {"sie_id": "org/status", "source": "gateway-registry", "bundles": ["scores"]}),
    Row("status of a model", "GET", f"{MODELS}/Org/vectors/status", 200),
    Row("status of an unknown model", "GET", f"{MODELS}/no/such/status", 404, "MODEL_NOT_FOUND"),
    Row("status needs a token", "GET", f"{MODELS}/Org/vectors/status", 401, "UNAUTHORIZED", token=""),
    Row("bundles, by priority", "GET", BUNDLES, 200, {"bundles": [
        {"bundle_id": "early", "engine": "native", "priority": 10, "adapter_count": 1, "source": "embedded",
         "connected_workers": 1},
        {"bundle_id": "late", "engine": "native", "priority": 20, "adapter_count": 2, "source": "filesystem",
         "connected_workers": 2},
        {"bundle_id": "scores", "engine": "native", "priority": 100, "adapter_count": 1, "source": "embedded",
         "connected_workers": 0},
    ]}),
    Row("bundles need a token", "GET", BUNDLES, 401, "UNAUTHORIZED", token=""),
    Row("a bundle", "GET", f"{BUNDLES}/late", 200,
        {"name": "late", "engine": "native", "priority": 20, "source": "filesystem", "adapters": [DENSE, "x"]}),
    Row("an unknown bundle", "GET", f"{BUNDLES}/no", 404, "BUNDLE_NOT_FOUND"),
    Row("a bundle needs a token", "GET", f"{BUNDLES}/late", 401, "UNAUTHORIZED", token=""),
    resolve("the default bundle", 200, RESOLVED, {"model": "org/vectors"}),
    resolve("null is absent", 200, RESOLVED, {"model": "org/vectors", "bundle": None}),
    resolve("by alias", 200, RESOLVED, {"model": "vec"}),
    resolve("the bundle of an alias", 200, RESOLVED | {"resolved_bundle": "late"}, {"model": "pinned"}),
    resolve("an override", 200, RESOLVED | {"resolved_bundle": "late"}, {"model": "org/vectors", "bundle": "late"}),
    resolve("a prefix", 200, RESOLVED | {"resolved_bundle": "late"}, {"model": "late:/org/vectors"}),
    resolve("the prefix beats the override", 200, RESOLVED, {"model": "early:/org/vectors", "bundle": "late"}),
    resolve("an unknown model", 404, "MODEL_NOT_FOUND", {"model": "no/such"}),
    resolve("a model without bundles", 404, "MODEL_NOT_FOUND", {"model": "alone"}),
    resolve("a bundle that does not fit", 409, "BUNDLE_ROUTING_CONFLICT", {"model": "vec", "bundle": "scores"}),
    resolve("an unknown bundle", 409, "BUNDLE_ROUTING_CONFLICT", {"model": "vec", "bundle": "no"}),
    resolve("a prefix that does not fit", 409, "BUNDLE_ROUTING_CONFLICT", {"model": "scores:/org/vectors"}),
    resolve("no model", 400, "INVALID_REQUEST", {}),
    resolve("an empty model", 400, "INVALID_REQUEST", {"model": ""}),
    resolve("a model that is no string", 400, "INVALID_REQUEST", {"model": 1}),
    resolve("a body that is no object", 400, "INVALID_REQUEST", []),
    resolve("a body too large", 413, "PAYLOAD_TOO_LARGE", {"model": "x" * 200})._replace(
        settings={"max_body_bytes": 100}
    ),
    resolve("another media type", 415, "UNSUPPORTED_MEDIA_TYPE", {"model": "vec"})._replace(media="text/yaml"),
    resolve("resolving, auth without tokens", 500, "GATEWAY_AUTH_MISCONFIGURED", {"model": "vec"})._replace(
        settings=NO_TOKENS
    ),
    resolve("resolving needs a token", 401, "UNAUTHORIZED", {"model": "vec"}, ""),
    resolve("resolving needs the admin token", 403, "FORBIDDEN", {"model": "vec"}, "t"),
]  # fmt: skip


def world(**more: Any) -> World:
    made = catalog()
    workers = [
        worker("w1", bundle="early", bundle_config_hash=made.bundle_config_hash("early")),
        worker("w2", bundle="late", bundle_config_hash="0" * 64),
        worker("w3", bundle="late", bundle_config_hash=made.bundle_config_hash("late")),
        worker("w4", bundle="late", healthy=False),
    ]
    return World(*workers, catalog=made, **more)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_row(row: Row) -> None:
    settings = {"auth_mode": "token", "auth_tokens": ("t",), "admin_token": "boss"} | row.settings
    with world(**settings).client() as http:
        headers = {"authorization": f"Bearer {row.token}"} if row.token else {}
        if row.body is not None:
            headers["content-type"] = row.media
        response = http.request(row.method, row.path, json=row.body, headers=headers)
    assert response.status_code == row.status, response.text
    if row.status >= 400:
        assert response.json()["detail"]["code"] == row.answer
        return
    if response.headers["content-type"].startswith("application/x-yaml"):
        assert yaml.safe_load(response.text) == row.answer
    elif row.answer is not None:
        assert response.json() == row.answer


def test_errors_of_resolving_say_what_was_asked_and_what_fits() -> None:
    with world().client() as http:
        missing = http.post(RESOLVE, json={"model": "no/such"})
        msgspec.convert(missing.json(), models.ResolveModelNotFoundResponse)
        assert missing.json()["detail"]["model"] == "no/such"
        conflict = http.post(RESOLVE, json={"model": "vec", "bundle": "scores"})
        msgspec.convert(conflict.json(), models.ResolveBundleConflictResponse)
        detail = conflict.json()["detail"]
        assert (detail["bundle"], detail["compatible_bundles"]) == ("scores", ["early", "late"])


def test_status_is_what_healthy_workers_of_each_bundle_say() -> None:
    cluster = world()
    with cluster.client() as http:
        status = http.get(f"{MODELS}/Org/vectors/status").json()
        msgspec.convert(status, models.ModelConfigStatusResponse)
        early, late = status["bundles"]
        assert (early["bundle_id"], early["acked"], early["acked_workers"]) == ("early", True, ["w1"])
        assert len(early["expected_bundle_config_hash"]) == 64
        assert (late["acked"], late["acked_workers"], late["pending_workers"]) == (False, ["w3"], ["w2"])
        assert (late["total_eligible_workers"], status["all_bundles_acked"], status["no_bundles"]) == (2, False, False)
        assert (status["model_id"], status["config_epoch"]) == ("Org/vectors", 0)
        cluster.cluster.listed = [one for one in cluster.cluster.listed if one.name != "w2"]
        assert http.get(f"{MODELS}/Org%2Fvectors/status").json()["all_bundles_acked"] is True
        cluster.cluster.listed = []
        status = http.get(f"{MODELS}/Org/vectors/status").json()
        assert [bundle["acked"] for bundle in status["bundles"]] == [False, False]
        status = http.get(f"{MODELS}/alone/status").json()
        assert (status["no_bundles"], status["all_bundles_acked"], status["bundles"]) == (True, False, [])
