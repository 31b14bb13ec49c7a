"""One row per operation, status and rule of contract I."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from generated.sie import models
from tests.pools.fakes import World, three_bundles, worker

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
POOL = {"name": "Mine", "gpus": {"l4": 1}}


class Row(NamedTuple):
    """A request to a gateway with the pool ``mine`` (one l4), the operator's queue ``batch`` and the worker ``w1``."""

    rule: str
    method: str
    path: str
    status: int
    code: str = ""
    body: dict[str, Any] | None = None
    token: str = "boss"
    settings: dict[str, Any] = {}  # noqa: RUF012  # a named tuple copies nothing, and no row changes it
    media: str = "application/json"


CREATE = ("POST", "/v1/pools")
NO_TOKENS: dict[str, Any] = {"auth_tokens": ()}
ROWS = [
    Row("list", "GET", "/v1/pools", 200, token="t"),
    Row("list needs a token", "GET", "/v1/pools", 401, "UNAUTHORIZED", token=""),
    Row("list is not opened by the admin token", "GET", "/v1/pools", 401, "UNAUTHORIZED"),
    Row("list, auth without tokens", "GET", "/v1/pools", 500, "GATEWAY_AUTH_MISCONFIGURED", settings=NO_TOKENS),
    Row("create", *CREATE, 201, body={"name": "new", "gpus": {"l4": 2}}),
    Row("create with caps alone", *CREATE, 201, body={"name": "new", "gpu_caps": {"l4": 2}}),
    Row("create, null is absent", *CREATE, 201, body={"name": "new", "gpus": {"l4": 0}, "bundle": None}),
    Row("update", *CREATE, 201, body={"name": "mine", "gpus": {"l4": 2}}),
    Row("renew by the same spec", *CREATE, 201, body=POOL),
    Row("every field", *CREATE, 201, body={
        "name": "all-Fields_1", "gpus": {"l4": 1}, "gpu_caps": {"l4": 3, "h100": 0}, "queue_pool": "BATCH",
        "bundle": "default", "ttl_seconds": 5, "minimum_worker_count": 2, "pinned_models": [MINILM.lower()],
    }),
    Row("create needs a token", *CREATE, 401, "UNAUTHORIZED", body=POOL, token=""),
    Row("create, unknown token", *CREATE, 401, "UNAUTHORIZED", body=POOL, token="x"),
    Row("create needs the admin token", *CREATE, 403, "FORBIDDEN", body=POOL, token="t"),
    Row("no admin token configured", *CREATE, 403, "FORBIDDEN", body=POOL, token="t", settings={"admin_token": None}),
    Row("create, auth without tokens", *CREATE, 500, "GATEWAY_AUTH_MISCONFIGURED", body=POOL, settings=NO_TOKENS),
    Row("create without auth", *CREATE, 201, body=POOL, token="", settings={"auth_mode": "none"}),
    Row("no name", *CREATE, 400, "INVALID_REQUEST", body={"gpus": {"l4": 1}}),
    Row("empty name", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"name": ""}),
    Row("bad name", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"name": "a b"}),
    Row("name with a newline", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"name": "a\n"}),
    Row("name too long", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"name": "a" * 129}),
    Row("longest name", *CREATE, 201, body=POOL | {"name": "a" * 128}),
    Row("reserved name", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"name": "_Default"}),
    Row("the default pool", *CREATE, 403, "POOL_OPERATION_FORBIDDEN", body=POOL | {"name": "Default"}),
    Row("a pool of the operator's", *CREATE, 403, "POOL_OPERATION_FORBIDDEN", body=POOL | {"name": "batch"}),
    Row("nothing asked for", *CREATE, 400, "INVALID_REQUEST", body={"name": "new"}),
    Row("empty gpus and caps", *CREATE, 400, "INVALID_REQUEST", body={"name": "new", "gpus": {}, "gpu_caps": {}}),
    Row("negative count", *CREATE, 400, "INVALID_REQUEST", body={"name": "new", "gpus": {"l4": -1}}),
    Row("count that is no integer", *CREATE, 400, "INVALID_REQUEST", body={"name": "new", "gpus": {"l4": 1.5}}),
    Row("count beyond 32 bits", *CREATE, 400, "INVALID_REQUEST", body={"name": "new", "gpus": {"l4": 2**31}}),
    Row("unknown profile", *CREATE, 400, "INVALID_REQUEST", body={"name": "new", "gpus": {"h100": 1}},
        settings={"gpu_types": ("l4",)}),
    Row("unknown profile in caps", *CREATE, 400, "INVALID_REQUEST", body={"name": "new", "gpu_caps": {"h100": 1}},
        settings={"gpu_types": ("l4",)}),
    Row("profile in another case", *CREATE, 201, body={"name": "new", "gpus": {"L4": 1}},
        settings={"gpu_types": ("l4",)}),
    Row("unknown queue", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"queue_pool": "nowhere"}),
    Row("unknown bundle", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"bundle": "nothing"}),
    Row("unknown pinned model", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"pinned_models": ["no/such"]}),
    Row("unknown pinned profile", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"pinned_models": [f"{MINILM}:no"]}),
    Row("ttl over the limit", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"ttl_seconds": 3601},
        settings={"pool_max_ttl": 3600.0}),
    Row("ttl at the limit", *CREATE, 201, body=POOL | {"ttl_seconds": 3600}, settings={"pool_max_ttl": 3600.0}),
    Row("warm floor over the limit", *CREATE, 400, "INVALID_REQUEST", body=POOL | {"minimum_worker_count": 5},
        settings={"pool_max_workers": 4}),
    Row("one pool too many", *CREATE, 403, "POOL_OPERATION_FORBIDDEN", body=POOL | {"name": "new"},
        settings={"max_pools": 1}),
    Row("a full house takes updates", *CREATE, 201, body=POOL, settings={"max_pools": 1}),
    Row("body too large", *CREATE, 413, "PAYLOAD_TOO_LARGE", body=POOL | {"pinned_models": ["x" * 200]},
        settings={"max_body_bytes": 100}),
    Row("body in another media type", *CREATE, 415, "UNSUPPORTED_MEDIA_TYPE", body=POOL, media="text/yaml"),
    Row("body is no object", *CREATE, 400, "INVALID_REQUEST", body=[]),  # type: ignore[arg-type]
    Row("get", "GET", "/v1/pools/mine", 200, token="t"),
    Row("get in another case", "GET", "/v1/pools/MINE", 200, token="t"),
    Row("get the default pool", "GET", "/v1/pools/default", 200, token="t"),
    Row("get a pool of the operator's", "GET", "/v1/pools/batch", 200, token="t"),
    Row("get needs a token", "GET", "/v1/pools/mine", 401, "UNAUTHORIZED", token=""),
    Row("get an unknown pool", "GET", "/v1/pools/no", 404, "POOL_NOT_FOUND", token="t"),
    Row("get what no pool is called", "GET", "/v1/pools/a%20b", 404, "POOL_NOT_FOUND", token="t"),
    Row("get, auth without tokens", "GET", "/v1/pools/mine", 500, "GATEWAY_AUTH_MISCONFIGURED", settings=NO_TOKENS),
    Row("renew", "POST", "/v1/pools/Mine/renew", 200),
    Row("renew the default pool", "POST", "/v1/pools/default/renew", 200),
    Row("renew needs a token", "POST", "/v1/pools/mine/renew", 401, "UNAUTHORIZED", token=""),
    Row("renew needs the admin token", "POST", "/v1/pools/mine/renew", 403, "FORBIDDEN", token="t"),
    Row("renew an unknown pool", "POST", "/v1/pools/no/renew", 404, "POOL_NOT_FOUND"),
    Row("renew, auth without tokens", "POST", "/v1/pools/mine/renew", 500, "GATEWAY_AUTH_MISCONFIGURED",
        settings=NO_TOKENS),
    Row("delete", "DELETE", "/v1/pools/Mine", 200),
    Row("delete the default pool", "DELETE", "/v1/pools/DEFAULT", 403, "DEFAULT_POOL_DELETE_FORBIDDEN"),
    Row("delete a pool of the operator's", "DELETE", "/v1/pools/batch", 403, "POOL_OPERATION_FORBIDDEN"),
    Row("delete needs a token", "DELETE", "/v1/pools/mine", 401, "UNAUTHORIZED", token=""),
    Row("delete needs the admin token", "DELETE", "/v1/pools/mine", 403, "FORBIDDEN", token="t"),
    Row("delete an unknown pool", "DELETE", "/v1/pools/no", 404, "POOL_NOT_FOUND"),
    Row("delete, auth without tokens", "DELETE", "/v1/pools/mine", 500, "GATEWAY_AUTH_MISCONFIGURED",
        settings=NO_TOKENS),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_row(row: Row) -> None:
    world = World(worker("w1"), **{
        "auth_mode": "token", "auth_tokens": ("t",), "admin_token": "boss", "queue_pools": ("batch",), **row.settings
    })  # fmt: skip
    with world.client() as http:
        first = http.post("/v1/pools", json=POOL, headers={"authorization": "Bearer boss"})
        assert first.status_code == 201 or "auth_tokens" in row.settings or "admin_token" in row.settings
        headers = {"authorization": f"Bearer {row.token}"} if row.token else {}
        if row.body is not None:
            headers["content-type"] = row.media
        response = http.request(row.method, row.path, json=row.body, headers=headers)
    assert response.status_code == row.status, response.text
    if row.status >= 400:
        detail = response.json()["detail"]
        assert (detail["code"], bool(detail["message"])) == (row.code, True)
        assert response.headers["x-sie-error-code"] == row.code
    elif row.path == "/v1/pools":
        msgspec.convert(response.json(), models.Pool if row.status == 201 else models.PoolListResponse)


@pytest.fixture
def world() -> World:
    return World(worker("w2"), worker("w1"), worker("w3", "h100"), worker("w4", healthy=False), queue_pools=("batch",))


def test_a_created_pool_is_in_canonical_form(world: World) -> None:
    body = {
        "name": "Mine",
        "gpus": {"l4": 1},
        "gpu_caps": {"h100": 2},
        "pinned_models": [MINILM.upper(), f"{MINILM}:default", MINILM.replace("/", "__")],
    }
    with world.client() as http:
        pool = http.post("/v1/pools", json=body).json()
    assert pool["spec"] == {
        "name": "mine",
        "queue_pool": "default",
        "bundle": None,
        "gpus": {"h100": 0, "l4": 1},
        "gpu_caps": {"h100": 2},
        "ttl_seconds": None,
        "minimum_worker_count": 0,
        "pinned_models": [MINILM],
    }


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"name": "x"}, "gpus", "At least one of 'gpus' and 'gpu_caps' is needed"),
        ({"name": "x", "gpus": {}}, "gpus", "gpus"),
        ({"name": "x", "gpus": {"": 1}}, "gpus", "''"),
        ({"name": "x", "gpus": {"l4": 1}, "gpu_caps": {" l4": 1}}, "gpu_caps", "' l4'"),
        ({"name": "x", "gpus": {"l4\n": 1}}, "gpus", "'l4\\n'"),
        ({"name": "x", "gpus": {"CPU": 1, "cpu": 1}}, "gpus", "'CPU' and 'cpu'"),
        ({"name": "x", "gpu_caps": {"CPU": 1, "cpu": 1}}, "gpu_caps", "'CPU' and 'cpu'"),
        ({"name": "x", "gpus": {"l4": 3}, "gpu_caps": {"L4": 2}}, "gpus.l4", "never"),
        ({"name": "a b", "gpus": {"l4": 1}}, "name", "only have letters, digits, '_', '-'"),
    ],
)
def test_a_refusal_says_what_is_needed(world: World, body: dict[str, Any], param: str, message: str) -> None:
    with world.client() as http:
        detail = http.post("/v1/pools", json=body).json()["detail"]
    assert detail["param"] == param
    assert message in detail["message"]


def test_a_pool_pins_only_what_its_bundle_can_run() -> None:
    world = World(worker("w1"), catalog=three_bundles())
    body = POOL | {"pinned_models": [MINILM]}
    with world.client() as http:
        for bundle in (None, "default", "second"):
            assert http.post("/v1/pools", json=body | {"bundle": bundle}).status_code == 201
        refused = http.post("/v1/pools", json=body | {"bundle": "empty"})
    assert refused.status_code == 400
    assert refused.json()["detail"]["param"] == "pinned_models[0]"
    assert f"Bundle 'empty' cannot run model '{MINILM}'" in refused.json()["detail"]["message"]


@pytest.mark.parametrize(("limit", "stored"), [(600.0, 600), (3600.0, None), (None, None)])
def test_a_pool_that_names_no_ttl_lives_no_longer_than_the_operator_allows(
    limit: float | None, stored: int | None
) -> None:
    world = World(worker("w1"), pool_max_ttl=limit)
    with world.client() as http:
        assert http.post("/v1/pools", json=POOL).json()["spec"]["ttl_seconds"] == stored
    world.pools.offset = 601.0
    assert (world.pools.find("mine") is None) == (limit == 600.0)


def test_a_profile_has_one_spelling(world: World) -> None:
    with world.client() as http:
        spec = http.post("/v1/pools", json={"name": "p", "gpus": {"L4": 1}, "gpu_caps": {"l4": 2}}).json()["spec"]
    assert (spec["gpus"], spec["gpu_caps"]) == ({"L4": 1}, {"L4": 2})


def test_workers_are_assigned_by_name_up_to_the_cap(world: World) -> None:
    with world.client() as http:
        pool = http.post("/v1/pools", json={"name": "p", "gpus": {"L4": 1}, "gpu_caps": {"L4": 1}}).json()
        assert pool["status"]["state"] == "active"
        assert [(one["name"], one["gpu"]) for one in pool["status"]["assigned_workers"]] == [("w1", "l4")]
        assert all(one["url"] for one in pool["status"]["assigned_workers"])
        pool = http.post("/v1/pools", json={"name": "p", "gpus": {"l4": 3}}).json()
        assert pool["status"]["state"] == "pending", "an unhealthy worker does not count"
        assert [one["name"] for one in pool["status"]["assigned_workers"]] == ["w1", "w2"]


def test_the_state_follows_the_workers(world: World) -> None:
    with world.client() as http:
        http.post("/v1/pools", json={"name": "p", "gpus": {"h100": 1}})
        assert http.get("/v1/pools/p").json()["status"]["state"] == "active"
        world.cluster.listed = [one for one in world.cluster.listed if one.name != "w3"]
        assert http.get("/v1/pools/p").json()["status"]["state"] == "pending"
        assert http.get("/v1/pools/default").json()["status"]["state"] == "active"
        world.cluster.listed = []
        assert http.get("/v1/pools/default").json()["status"]["state"] == "pending"


def test_the_default_pool_is_always_listed_first(world: World) -> None:
    world.cluster.listed = []
    with world.client() as http:
        http.post("/v1/pools", json={"name": "a", "gpus": {"l4": 1}})
        assert [pool["spec"]["name"] for pool in http.get("/v1/pools").json()["pools"]] == ["default", "batch", "a"]


def test_renewal_keeps_the_birth_and_moves_the_renewal(world: World) -> None:
    with world.client() as http:
        born = http.post("/v1/pools", json=POOL).json()["status"]
        world.pools.offset = 10.0
        assert http.post("/v1/pools/mine/renew").json() == {"message": "Pool renewed"}
        renewed = http.get("/v1/pools/mine").json()["status"]
        assert renewed["created_at"] == born["created_at"]
        assert renewed["last_renewed"] >= born["last_renewed"] + 10.0


def test_an_expired_pool_is_there_until_it_is_swept(world: World) -> None:
    """What is shown can be renewed and deleted."""
    with world.client() as http:
        http.post("/v1/pools", json=POOL | {"ttl_seconds": 0})
        assert http.get("/v1/pools/mine").json()["status"]["state"] == "expired"
        assert http.get("/v1/pools").json()["pools"][-1]["status"]["state"] == "expired"
        assert http.post("/v1/pools/mine/renew").status_code == 200
        assert http.delete("/v1/pools/mine").status_code == 200
        assert [http.get("/v1/pools/mine").status_code, http.delete("/v1/pools/mine").status_code] == [404, 404]


def test_an_expired_pool_is_created_anew(world: World) -> None:
    with world.client() as http:
        born = http.post("/v1/pools", json=POOL | {"ttl_seconds": 5}).json()["status"]["created_at"]
        world.pools.offset = 6.0
        assert http.post("/v1/pools", json=POOL | {"ttl_seconds": 5}).json()["status"]["created_at"] > born


def test_a_store_that_is_down_is_told(world: World) -> None:
    world.pools.down = True
    with world.client() as http:
        response = http.post("/v1/pools", json=POOL)
        assert response.status_code == 500
        assert response.headers["retry-after"] == "5"
        assert "cannot be changed now" in response.json()["detail"]["message"]


def test_changes_are_counted_by_what_they_did(world: World) -> None:
    with world.client() as http:
        for gpus in (1, 1, 2):
            http.post("/v1/pools", json={"name": "p", "gpus": {"l4": gpus}})
        http.post("/v1/pools/P/renew")
        http.post("/v1/pools/none/renew")
        http.post("/v1/pools", json={"name": "p"})
        http.delete("/v1/pools/p")
        text = http.get("/metrics").text
    counts = {"created": 1, "renewed": 2, "updated": 1, "deleted": 1}
    for event, count in counts.items():
        assert f'sie_gateway_pool_events_total{{event="{event}"}} {count}.0\n' in text
    assert text.count("sie_gateway_pool_events_total{") == len(counts)
