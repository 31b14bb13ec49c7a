"""The Helm chart: rendered by Helm's own code, checked against Kubernetes' schemas and against what it starts."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import kubernetes_validate
import pytest
import yaml

from engines.bus.settings import BusSettings
from engines.protocol.lanes import LaneLoad
from engines.protocol.pools import PoolSpec
from engines.worker import main as worker
from engines.worker.signs import FILE, State
from handlers import settings

from .exposition import Sample, matches, query, scrape
from .tools import CHART, Document, container, environment, of_kind, render, values_files

VALUES = values_files()
OLDEST, NEWEST = "1.27.1", kubernetes_validate.latest_version()
KEDA, PROMETHEUS = "keda.sh/v1alpha1", "monitoring.coreos.com/v1"
each = pytest.mark.parametrize("name", VALUES)
WORKER = {"name": "a", "pool": "default", "machineProfile": "cpu", "bundle": "default", "resources": {}}


@each
def test_helm_has_nothing_to_say_against_it(name: str) -> None:
    lint = import_module("helm_python.chart").lint
    report = lint(CHART, VALUES[name], strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@each
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_what_kubernetes_takes(name: str, version: str) -> None:
    """Strictly: an unknown field is a fault."""
    for manifest in render(VALUES[name]):
        if manifest["apiVersion"] not in {KEDA, PROMETHEUS}:
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("name", [name for name in VALUES if name != "fixed"])
def test_custom_resources_are_what_their_operators_take(name: str) -> None:
    """The operators' own schemas, as pydantic models; what a model does not know is a fault."""
    kinds = {
        KEDA: import_module("cloudcoil.models.keda.v1alpha1"),
        PROMETHEUS: import_module("cloudcoil.models.prometheus_operator.v1"),
    }
    custom = [manifest for manifest in render(VALUES[name]) if manifest["apiVersion"] in kinds]
    assert custom
    for manifest in custom:
        model = getattr(kinds[manifest["apiVersion"]], manifest["kind"]).model_validate(manifest)
        assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == manifest


@each
def test_names_are_unique_and_selectors_find_their_pods(name: str) -> None:
    manifests = render(VALUES[name])
    names = Counter((one["kind"], one["metadata"]["name"]) for one in manifests)
    assert set(names.values()) == {1}
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in manifests
        if "template" in one["spec"]
    }
    for manifest in manifests:
        wanted = manifest["spec"].get("selector") or manifest["spec"].get("podSelector")
        if wanted is None:
            continue
        wanted = wanted.get("matchLabels", wanted)
        chosen = [pod for pod, labels in pods.items() if wanted.items() <= labels.items()]
        assert chosen == [manifest["metadata"]["name"]]


@each
def test_every_mount_has_its_volume_and_every_file_its_mount(name: str) -> None:
    for deployment in of_kind(render(VALUES[name]), "Deployment"):
        volumes = [volume["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"]]
        mounts = container(deployment)["volumeMounts"]
        assert sorted(mount["name"] for mount in mounts) == sorted(volumes)
        files = [value for value in environment(deployment).values() if value.startswith("/etc/oasgate/")]
        for file in files:
            assert any(file.startswith(f"{mount['mountPath']}/") for mount in mounts), file


@each
def test_pods_have_no_more_rights_than_they_need(name: str) -> None:
    for deployment in of_kind(render(VALUES[name]), "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001, "the user of the Dockerfiles"
        rights = container(deployment)["securityContext"]
        assert rights == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@each
def test_a_gateway_takes_the_settings_it_is_given(name: str) -> None:
    manifests = render(VALUES[name])
    (deployment,) = of_kind(manifests, "Deployment", "gateway")
    environ = environment(deployment)
    read = settings.read(environ)
    lanes = [worker.options(container(one)["args"][1:]) for one in of_kind(manifests, "Deployment", "worker")]
    assert set(read.gpu_types) == {lane.machine_profile for lane in lanes}
    assert {"default", *read.queue_pools} == {"default", *(lane.pool for lane in lanes)}
    assert BusSettings.from_env(environ).url == environ["SIE_NATS_URL"]
    pod = deployment["spec"]["template"]["spec"]
    pause = int(container(deployment)["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= read.drain_timeout + pause + 10


@each
def test_workers_take_the_options_they_are_given(name: str) -> None:
    values = VALUES[name].get("workers") or yaml.safe_load((CHART / "values.yaml").read_text())["workers"]
    deployments = of_kind(render(VALUES[name]), "Deployment", "worker")
    assert len(deployments) == len(values)
    for given, deployment in zip(values, deployments, strict=True):
        command, *arguments = container(deployment)["args"]
        options = worker.options(arguments)
        assert (command, options.pool, options.bundle) == ("worker", given["pool"], given["bundle"])
        assert options.machine_profile == given["machineProfile"]
        assert list(options.models) == given.get("models", [])
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= options.drain + 20
        assert BusSettings.from_env(environment(deployment)).url
        limits = container(deployment)["resources"].get("limits", {})
        assert limits.get("nvidia.com/gpu", 0) == given.get("gpu", 0)


def test_gateways_are_probed_where_they_answer() -> None:
    (gateway,) = of_kind(render({}), "Deployment", "gateway")
    probes = {
        name: container(gateway)[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def test_probes_of_workers_read_the_file_that_workers_write(tmp_path: Path) -> None:
    (deployment,) = of_kind(render({}), "Deployment", "worker")
    file = tmp_path / "state"
    named = environment(deployment)[FILE]
    commands = {
        name: [word.replace(named, str(file)) for word in container(deployment)[f"{name}Probe"]["exec"]["command"]]
        for name in ("startup", "liveness", "readiness")
    }

    def passing() -> set[str]:
        runs = {name: subprocess.run(words, check=False, stderr=subprocess.DEVNULL) for name, words in commands.items()}
        return {name for name, run in runs.items() if run.returncode == 0}

    assert passing() == set()
    for state in get_args(State):
        file.write_text(state)
        assert passing() == {"startup", "liveness"} | ({"readiness"} if state == "ready" else set())
    os.utime(file, (0, 0))
    assert "liveness" not in passing(), "the event loop hangs"


def test_nats_over_tls_with_credentials_reaches_both_kinds_of_process() -> None:
    for deployment in of_kind(render(VALUES["secured"]), "Deployment"):
        bus = BusSettings.from_env(environment(deployment))
        assert bus.credentials == "/etc/oasgate/nats/nats.creds"
        assert (bus.tls_ca, bus.tls_cert, bus.tls_key) == tuple(
            f"/etc/oasgate/nats-tls/{name}" for name in ("ca.crt", "tls.crt", "tls.key")
        )


def test_only_gateways_have_tokens() -> None:
    manifests = render(VALUES["secured"])
    (gateway,) = of_kind(manifests, "Deployment", "gateway")
    read = settings.read(environment(gateway))
    assert (read.auth_mode, read.auth_tokens_file) == ("token", "/etc/oasgate/auth/tokens")
    assert read.admin_token_file == "/etc/oasgate/auth/admin"
    for deployment in of_kind(manifests, "Deployment", "worker"):
        assert "oasgate-tokens" not in str(deployment)


def test_without_keda_the_number_of_workers_is_fixed() -> None:
    manifests = render(VALUES["fixed"])
    assert {one["kind"] for one in manifests} == {"Deployment", "Service"}
    assert [one["spec"]["replicas"] for one in of_kind(manifests, "Deployment", "worker")] == [3, 1]


def test_with_keda_an_upgrade_leaves_the_number_of_workers_alone() -> None:
    assert all("replicas" not in one["spec"] for one in of_kind(render(VALUES["gpu"]), "Deployment", "worker"))


def test_zero_and_false_are_values() -> None:
    scalers = {one["metadata"]["name"]: one for one in of_kind(render(VALUES["gpu"]), "ScaledObject")}
    batch = scalers["demo-oasgate-worker-l4-batch"]["spec"]
    assert batch["minReplicaCount"] == 0
    assert 'machine_profile="l4-spot"' in batch["triggers"][0]["metadata"]["query"], "anyProfile is false"


def test_large_numbers_stay_numbers() -> None:
    (gateway,) = of_kind(render(VALUES["gpu"]), "Deployment", "gateway")
    assert BusSettings.from_env(environment(gateway)).max_bytes == 4 << 30


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gateway": {"replica": 3}}, "replica"),
        ({"auth": {"mode": "token"}}, "secret"),
        ({"auth": {"mode": "tokens"}}, "mode"),
        ({"nats": {"url": "nats.example.com"}}, "url"),
        ({"nats": {"replicas": 2}}, "replicas"),
        ({"workers": [{"name": "a"}]}, "machineProfile"),
        ({"workers": [WORKER | {"pool": "a b"}]}, "pool"),
        ({"workers": [WORKER | {"modles": []}]}, "modles"),
        ({"workers": [WORKER | {"scaling": {"min": 5, "max": 2}}]}, "scaling.min is above scaling.max"),
        ({"workers": [WORKER, WORKER]}, "two groups are called a"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: Document, message: str) -> None:
    errors = import_module("helm_python.errors")
    with pytest.raises(errors.HelmError, match=re.escape(message)):
        render(values)


# what the scalers ask Prometheus


def lane(pool: str, profile: str, **counts: int) -> LaneLoad:
    return LaneLoad(pool=pool, machine_profile=profile, bundle="default", **counts)


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """A gateway with the settings of the GPU values, which has had some of everything."""
    (gateway,) = of_kind(render(VALUES["gpu"]), "Deployment", "gateway")
    read = settings.read(environment(gateway))
    return scrape(
        lane("default", "h100", open=5, queued=3, unacknowledged=1),
        lane("batch", "l4-spot", open=40, queued=9, unacknowledged=7),
        pools=[
            PoolSpec(name="warm", gpus={"h100": 1}, minimum_worker_count=2),
            PoolSpec(name="night", queue_pool="batch", bundle="default", gpus={"l4-spot": 3}, minimum_worker_count=3),
            PoolSpec(name="other", bundle="vision", gpus={"h100": 4}, minimum_worker_count=4),
        ],
        refused=["", "h100", "H100"],
        gpu_types=read.gpu_types,
        queue_pools=read.queue_pools,
    )


def test_scalers_see_the_demand_of_their_own_workers(samples: list[Sample]) -> None:
    """Requests that are open, those refused for want of a worker, the queue, and the floors of pools."""
    asked: dict[str, dict[str, float]] = {}
    for scaler in of_kind(render(VALUES["gpu"]), "ScaledObject"):
        answers = asked[scaler["metadata"]["name"].removeprefix("demo-oasgate-worker-")] = {}
        for trigger in scaler["spec"]["triggers"]:
            answers[trigger["name"]] = answer(trigger["metadata"]["query"], samples)
    assert asked == {
        "h100": {"demand": 5 + 3, "queue": 3, "warm-floor": 2},
        "l4-batch": {"demand": 40, "queue": 9, "warm-floor": 3},
    }


@each
def test_scalers_ask_for_series_that_exist(name: str, samples: list[Sample]) -> None:
    names = {sample.name: set(sample.labels) for sample in samples}
    for scaler in of_kind(render(VALUES[name]), "ScaledObject"):
        assert {trigger["name"] for trigger in scaler["spec"]["triggers"]} == {"demand", "queue", "warm-floor"}
        for trigger in scaler["spec"]["triggers"]:
            for selector in query(trigger["metadata"]["query"]).selectors:
                labels = {matcher.name for matcher in selector.matchers.matchers}
                assert labels <= names[selector.name] | {"namespace"}


def answer(expression: str, samples: list[Sample]) -> float:
    """What Prometheus says to ``sum(...)`` or ``max(...)`` of one selector."""
    function: Any = {"sum": sum, "max": max}[expression.partition("(")[0]]
    (selector,) = query(expression).selectors
    return float(function(sample.value for sample in samples if matches(selector, sample)))
