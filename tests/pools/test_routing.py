"""Where the headers send work: ``X-SIE-Pool``, ``X-SIE-MACHINE-PROFILE``, ``X-SIE-Engine`` and what the pools allow
(contract I.4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engines.catalog import Catalog
from engines.protocol.cluster import Route
from tests.pools.fakes import CATALOG, World, three_bundles, worker

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
CHAT_BODY = {"model": CHAT, "messages": [{"role": "user", "content": "Hi"}]}
POOLS: list[dict[str, Any]] = [
    {"name": "mine", "gpus": {"l4": 1}},
    {"name": "closed", "gpu_caps": {"l4": 0}},
    {"name": "half", "gpus": {"l4": 1, "h100": 1}, "gpu_caps": {"l4": 0}},
    {"name": "apart", "gpus": {"l4": 1}, "queue_pool": "batch"},
]


def home(queue: str) -> Catalog:
    """The embedded catalog with a model that only one queue serves."""
    entries = [msgspec.structs.replace(one, pool=queue) if one.name == MINILM else one for one in CATALOG.models()]
    return Catalog(entries, CATALOG.bundles())


def encode(world: World, headers: dict[str, str], model: str = MINILM) -> Any:
    with world.client() as http:
        for pool in POOLS:
            assert http.post("/v1/pools", json=pool).status_code == 201
        return http.post(f"/v1/encode/{model}", json={"items": [{"text": "x"}]}, headers=headers)


def chat(world: World, headers: dict[str, str]) -> Any:
    with world.client() as http:
        for pool in POOLS:
            assert http.post("/v1/pools", json=pool).status_code == 201
        return http.post("/v1/chat/completions", json=CHAT_BODY, headers=headers)


def a_world(**more: Any) -> World:
    return World(worker("w1"), worker("w2", "h100"), worker("w3", pool="batch"), **more)


@pytest.mark.parametrize(
    ("headers", "route"),
    [
        ({}, Route()),
        ({"x-sie-pool": "default"}, Route()),
        ({"x-sie-pool": "DEFAULT"}, Route()),
        ({"x-sie-pool": "Batch"}, Route(pool="batch")),
        ({"x-sie-machine-profile": "l4"}, Route(machine_profile="l4")),
        ({"x-sie-pool": "Mine"}, Route(machine_profiles=("l4",))),
        ({"x-sie-pool": "half"}, Route(machine_profiles=("h100",))),
        ({"x-sie-pool": "half", "x-sie-machine-profile": "h100"}, Route(machine_profile="h100")),
        ({"x-sie-pool": "apart"}, Route(pool="batch", machine_profiles=("l4",))),
        ({"x-sie-machine-profile": "mine/L4"}, Route(machine_profile="L4")),
        ({"x-sie-pool": "half", "x-sie-machine-profile": "mine/l4"}, Route(machine_profile="l4")),
        ({"x-sie-machine-profile": "default/l4"}, Route(machine_profile="l4")),
    ],
    ids=str,
)
def test_work_goes_where_the_headers_say(headers: dict[str, str], route: Route) -> None:
    world = a_world()
    response = encode(world, headers)
    assert world.cluster.routes == [route]
    assert world.cluster.sent[0].pool == route.pool
    assert (response.status_code, response.headers["retry-after"]) == (503, "60")
    assert response.json()["error"]["code"] == response.headers["x-sie-error-code"] == "PROVISIONING"


@pytest.mark.parametrize(
    ("headers", "status", "code", "param"),
    [
        ({"x-sie-pool": "nowhere"}, 404, "POOL_NOT_FOUND", "pool"),
        ({"x-sie-machine-profile": "nowhere/l4"}, 404, "POOL_NOT_FOUND", "pool"),
        ({"x-sie-pool": "a b"}, 400, "INVALID_REQUEST", "X-SIE-Pool"),
        ({"x-sie-pool": "a" * 129}, 400, "INVALID_REQUEST", "X-SIE-Pool"),
        ({"x-sie-machine-profile": "/l4"}, 400, "INVALID_REQUEST", "X-SIE-Pool"),
        ({"x-sie-machine-profile": "mine/"}, 400, "INVALID_REQUEST", "X-SIE-MACHINE-PROFILE"),
        ({"x-sie-pool": "closed"}, 503, "POOL_CAPACITY_UNAVAILABLE", None),
        ({"x-sie-pool": "closed", "x-sie-machine-profile": "l4"}, 503, "POOL_CAPACITY_UNAVAILABLE", None),
        ({"x-sie-machine-profile": "half/L4"}, 503, "POOL_CAPACITY_UNAVAILABLE", None),
        ({"x-sie-machine-profile": "mine/h100"}, 503, "POOL_CAPACITY_UNAVAILABLE", None),
        ({"x-sie-machine-profile": "a100"}, 503, "GPU_NOT_CONFIGURED", "X-SIE-MACHINE-PROFILE"),
    ],
    ids=str,
)
def test_what_cannot_be_routed_is_refused_in_both_envelopes(
    headers: dict[str, str], status: int, code: str, param: str | None
) -> None:
    world = a_world(gpu_types=("l4", "h100"))
    native = encode(world, headers)
    assert (native.status_code, native.json()["detail"]["code"]) == (status, code)
    openai = chat(world, headers)
    error = openai.json()["error"]
    assert (openai.status_code, error["param"], openai.headers["x-sie-error-code"]) == (status, param, code)
    assert error["code"] == ("transport_failure" if status == 503 else "invalid_request")
    assert "retry-after" not in native.headers
    assert "retry-after" not in openai.headers
    assert world.cluster.routes == []


def test_capacity_and_configuration_say_what_is_there() -> None:
    world = a_world(gpu_types=("l4", "h100"))
    capacity = encode(world, {"x-sie-pool": "closed"}).json()["detail"]
    assert {key: capacity[key] for key in ("pool", "gpu", "bundle", "cap")} == {
        "pool": "closed",
        "gpu": "l4",
        "bundle": "default",
        "cap": 0,
    }
    missing = encode(world, {"x-sie-machine-profile": "a100"}).json()["detail"]
    assert (missing["gpu"], missing["configured_gpu_types"]) == ("a100", ["l4", "h100"])


@pytest.mark.parametrize(
    ("asked", "profile"),
    [("L4", "l4"), ("Cheap", "l4"), ("a100", "a100-spot"), ("mine/cheap", "l4")],
)
def test_profiles_have_aliases_and_a_spot_form(asked: str, profile: str) -> None:
    world = a_world(gpu_types=("l4", "a100-spot"), gpu_aliases={"cheap": "l4"})
    with world.client() as http:
        http.post("/v1/pools", json={"name": "mine", "gpus": {"l4": 1}})
        http.post(f"/v1/encode/{MINILM}", json={"items": [{"text": "x"}]}, headers={"x-sie-machine-profile": asked})
    assert world.cluster.routes == [Route(machine_profile=profile)]


def test_a_model_that_one_queue_serves_goes_there_by_itself() -> None:
    world = a_world(catalog=home("batch"))
    encode(world, {})
    assert world.cluster.routes == [Route(pool="batch")]
    for headers in ({"x-sie-pool": "default"}, {"x-sie-pool": "mine"}):
        refused = encode(world, headers)
        assert (refused.status_code, refused.json()["detail"]["code"]) == (400, "INVALID_REQUEST")
        assert "batch" in refused.json()["detail"]["message"]
    encode(world, {"x-sie-pool": "apart"})
    assert world.cluster.routes[-1].pool == "batch"


def test_a_model_whose_queue_has_no_worker_is_being_provisioned() -> None:
    world = a_world(catalog=home("elsewhere"))
    assert encode(world, {}).json()["error"]["code"] == "PROVISIONING"
    assert world.cluster.routes == [Route(pool="elsewhere")]


def test_the_bundle_of_a_pool_runs_its_work() -> None:
    modules = tuple(CATALOG.bundles()[0].adapters)
    first, second = CATALOG.bundles()[0], msgspec.structs.replace(CATALOG.bundles()[0], name="other", priority=200)
    empty = msgspec.structs.replace(first, name="empty", adapters=("none",))
    assert modules
    world = a_world(catalog=Catalog(list(CATALOG.models()), [first, second, empty]))
    with world.client() as http:
        for name, bundle in (("a", "other"), ("b", "empty")):
            http.post("/v1/pools", json={"name": name, "gpus": {"l4": 1}, "bundle": bundle})
        body = {"items": [{"text": "x"}]}
        http.post(f"/v1/encode/{MINILM}", json=body, headers={"x-sie-pool": "a"})
        assert world.cluster.sent[-1].bundle == "other"
        refused = http.post(f"/v1/encode/{MINILM}", json=body, headers={"x-sie-pool": "b"})
        assert refused.status_code == 409
        assert refused.json()["detail"]["compatible_bundles"] == ["default", "other"]
        refused = http.post(f"/v1/encode/default:/{MINILM}", json=body, headers={"x-sie-pool": "a"})
        assert refused.status_code == 409


@pytest.mark.parametrize(
    ("headers", "model", "bundle"),
    [
        ({}, MINILM, "default"),
        ({"x-sie-engine": ""}, MINILM, "default"),
        ({"x-sie-engine": "native"}, MINILM, "default"),
        ({"x-sie-engine": "sglang"}, MINILM, "second"),
        ({"x-sie-engine": "sglang"}, f"second:/{MINILM}", "second"),
        ({"x-sie-engine": "SGLANG", "x-sie-pool": "a"}, MINILM, "second"),
    ],
    ids=str,
)
def test_the_engine_header_chooses_among_bundles(headers: dict[str, str], model: str, bundle: str) -> None:
    world = a_world(catalog=three_bundles())
    with world.client() as http:
        http.post("/v1/pools", json={"name": "a", "gpus": {"l4": 1}, "bundle": "second"})
        http.post(f"/v1/encode/{model}", json={"items": [{"text": "x"}]}, headers=headers)
    assert [work.bundle for work in world.cluster.sent] == [bundle]


@pytest.mark.parametrize(
    ("headers", "model", "status", "code"),
    [
        ({"x-sie-engine": "tensorrt"}, MINILM, 400, "INVALID_REQUEST"),
        ({"x-sie-engine": "nativ\xe9".encode("latin-1")}, MINILM, 400, "INVALID_REQUEST"),
        ({"x-sie-engine": "onnx"}, MINILM, 409, "BUNDLE_ROUTING_CONFLICT"),
        ({"x-sie-engine": "sglang"}, f"default:/{MINILM}", 409, "BUNDLE_ROUTING_CONFLICT"),
        ({"x-sie-engine": "native", "x-sie-pool": "a"}, MINILM, 409, "BUNDLE_ROUTING_CONFLICT"),
    ],
    ids=str,
)
def test_an_engine_that_cannot_be_is_refused(headers: dict[str, Any], model: str, status: int, code: str) -> None:
    world = a_world(catalog=three_bundles())
    with world.client() as http:
        http.post("/v1/pools", json={"name": "a", "gpus": {"l4": 1}, "bundle": "second"})
        refused = http.post(f"/v1/encode/{model}", json={"items": [{"text": "x"}]}, headers=headers)
        assert (refused.status_code, refused.json()["detail"]["code"]) == (status, code)
        if status == 409:
            assert refused.json()["detail"]["compatible_bundles"] == ["default", "second"]
        body = {"model": model.replace(MINILM, CHAT), "messages": CHAT_BODY["messages"]}
        openai = http.post("/v1/chat/completions", json=body, headers=headers)
        error = openai.json()["error"]
        assert (openai.status_code, error["code"]) == (status, "invalid_request")
        assert error["param"] == (None if status == 400 else "model")
    assert world.cluster.sent == []


def test_a_pool_that_has_expired_is_unknown() -> None:
    world = a_world()
    with world.client() as http:
        http.post("/v1/pools", json={"name": "brief", "gpus": {"l4": 1}, "ttl_seconds": 5})
        world.pools.offset = 6.0
        refused = http.post(f"/v1/encode/{MINILM}", json={"items": [{"text": "x"}]}, headers={"x-sie-pool": "brief"})
    assert refused.json()["detail"]["code"] == "POOL_NOT_FOUND"
