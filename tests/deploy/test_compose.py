"""``compose.yaml`` and the configuration files that its services read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.bus.settings import BusSettings
from engines.catalog import Catalog
from engines.worker import main as worker
from handlers import settings

from .tools import DEPLOY, ROOT, Document

TEXT = (DEPLOY / "compose.yaml").read_text()


def filled(text: str) -> str:
    """With the default of every variable."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.fixture
def services() -> dict[str, Document]:
    return dict(yaml.safe_load(filled(TEXT))["services"])


def drain(services: dict[str, Document], name: str) -> float:
    return float(services[name]["stop_grace_period"].removesuffix("s"))


def test_the_file_is_what_the_compose_specification_says() -> None:
    compose = import_module("compose_spec").PyCompose
    compose.from_json(json.dumps(yaml.safe_load(filled(TEXT)))).validate()


def test_what_is_named_is_there(services: dict[str, Document]) -> None:
    volumes = yaml.safe_load(TEXT)["volumes"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in volumes
        if build := service.get("build"):
            assert (DEPLOY / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()


def test_published_ports_are_of_this_machine_alone(services: dict[str, Document]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_gateways_take_their_settings_and_have_the_time_to_drain(services: dict[str, Document]) -> None:
    for name in ("gateway-1", "gateway-2"):
        environ = services[name]["environment"]
        read = settings.read(environ)
        assert drain(services, name) >= read.drain_timeout + 10
        assert read.gpu_types == (worker_options(services).machine_profile,)


def worker_options(services: dict[str, Document]) -> Any:
    command, *arguments = services["worker"]["command"]
    assert command == "worker"
    return worker.options(arguments)


def test_the_worker_takes_its_options_and_knows_its_models(services: dict[str, Document]) -> None:
    options = worker_options(services)
    assert options.models
    for model in options.models:
        Catalog.from_env({}).resolve(model)
    assert drain(services, "worker") >= options.drain + 20


def test_everybody_joins_the_cluster_that_there_is(services: dict[str, Document]) -> None:
    servers = {name for name in services if name.startswith("nats-")}
    for name in ("gateway-1", "gateway-2", "worker"):
        bus = BusSettings.from_env(services[name]["environment"])
        assert bus.url is not None
        assert {url.removeprefix("nats://").removesuffix(":4222") for url in bus.url.split(",")} == servers
        assert bus.replicas == len(servers)
    config = (DEPLOY / "compose" / "nats.conf").read_text()
    assert set(re.findall(r"nats://([\w-]+):6222", config)) == servers


def test_the_configuration_of_nats_is_what_nats_takes(tmp_path: Path) -> None:
    config = (DEPLOY / "compose" / "nats.conf").read_text()
    assert "/data" in config
    (tmp_path / "nats.conf").write_text(config.replace("/data", str(tmp_path)))
    binary = Path(sysconfig.get_path("scripts")) / "nats-server"
    command = [str(binary), "--config", str(tmp_path / "nats.conf"), "-t"]
    run = subprocess.run(
        command, env={**os.environ, "NATS_NAME": "nats-1"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_prometheus_scrapes_every_gateway_by_itself(services: dict[str, Document]) -> None:
    (job,) = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    (targets,) = [config["targets"] for config in job["static_configs"]]
    assert set(targets) == {f"{name}:8000" for name in services if name.startswith("gateway-")}
    assert job.get("metrics_path", "/metrics") == "/metrics"


def test_grafana_finds_its_data_source_and_the_dashboard(services: dict[str, Document]) -> None:
    provisioning = DEPLOY / "compose" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "oasgate.yaml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert provider["options"]["path"] == mounts["./grafana"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana" / Path(home).name).is_file()
