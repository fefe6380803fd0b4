"""The files that containers are started from: they follow their schemas, and agree with each other
and with the settings.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import kubernetes_validate
import pytest
import yaml

from prefold.proxy import settings, settings_file
from prefold.proxy.routes import ROUTES

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
FOLDERS = ("proxy", "prefix_index", "backends", "compression", "measurement")


def compose() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return made


def kubernetes(kind: str = "") -> dict[str, dict[str, Any]]:
    """By name; of one kind, or all as KIND/NAME."""
    texts = [file.read_text("utf-8") for file in sorted(KUBERNETES.glob("*.yaml"))]
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    if not kind:
        return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def loaded(text: str, folder: Path, secrets: str) -> settings.Settings:
    """As the container would load them, with its secrets in place."""
    for name in ("admin-key", "prefold-secret", "secret"):
        (folder / name).write_text("x" * 32 + "\n", encoding="utf-8")
    file = folder / "prefold.toml"
    file.write_text(text.replace(secrets, str(folder)), encoding="utf-8")
    return settings_file.load(file, env={})


def compose_settings(folder: Path) -> settings.Settings:
    file = ROOT / compose()["configs"]["prefold"]["file"]
    return loaded(file.read_text("utf-8"), folder, "/run/secrets")


def kubernetes_settings(folder: Path) -> settings.Settings:
    text = kubernetes("ConfigMap")["prefold"]["data"]["prefold.toml"]
    return loaded(text, folder, "/etc/prefold-secrets")


def pod(deployment: str) -> dict[str, Any]:
    made: dict[str, Any] = kubernetes("Deployment")[deployment]["spec"]["template"]["spec"]
    return made


def test_the_compose_file_follows_the_compose_specification() -> None:
    """Against the schema that check-jsonschema carries."""
    vendored = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((vendored / "compose-spec.json").read_text("utf-8"))

    jsonschema.validate(compose(), schema)


def test_what_the_compose_file_names_is_there() -> None:
    """Volumes, secrets, configs, other services, and files beside it."""
    file = compose()
    for service in file["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in file["volumes"]
        assert set(service.get("secrets", ())) <= set(file["secrets"])
        assert {one["source"] for one in service.get("configs", ())} <= set(file["configs"])
        assert set(service.get("depends_on", ())) <= set(file["services"])


def test_the_proxies_find_every_engine_of_either_profile(tmp_path: Path) -> None:
    """By the name that all of them have, at the port that all of them listen on."""
    dns = urlsplit(compose_settings(tmp_path).discovery.dns)
    services = compose()["services"]
    engines = [one for name, one in services.items() if name.startswith(("engine", "vllm"))]

    assert len(engines) == 4
    for engine in engines:
        assert engine["networks"]["default"]["aliases"] == [dns.hostname]
        assert str(dns.port) in re.split(r"[=\s]", " ".join(engine["command"]))


def test_prometheus_scrapes_the_admin_port_of_every_proxy(tmp_path: Path) -> None:
    """With the key that the proxies read from the same secret."""
    scraping = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    job = next(one for one in scraping["scrape_configs"] if one["job_name"] == "prefold")
    proxies = [name for name in compose()["services"] if name.startswith("proxy")]
    port = compose_settings(tmp_path).server.admin_port

    assert job["static_configs"][0]["targets"] == [f"{name}:{port}" for name in proxies]
    assert Path(job["authorization"]["credentials_file"]).name == "admin-key"


def test_compose_waits_as_long_as_the_proxies_drain(tmp_path: Path) -> None:
    """Docker kills what is not gone after stop_grace_period."""
    server = compose_settings(tmp_path).server
    for name in ("proxy-1", "proxy-2"):
        grace = float(compose()["services"][name]["stop_grace_period"].removesuffix("s"))
        assert grace > server.lame_duck_s + server.drain_s


@pytest.mark.parametrize("name", sorted(kubernetes()))
def test_manifests_follow_the_schemas_of_kubernetes(name: str) -> None:
    """Of the newest version that kubernetes-validate has; unknown members are errors."""
    version = kubernetes_validate.latest_version()

    kubernetes_validate.validate(kubernetes()[name], version, strict=True)


def test_kubernetes_waits_as_long_as_the_proxies_drain(tmp_path: Path) -> None:
    """The kubelet kills what is not gone after the grace period."""
    server = kubernetes_settings(tmp_path).server

    assert pod("prefold")["terminationGracePeriodSeconds"] > server.lame_duck_s + server.drain_s


def test_probes_ask_for_paths_that_are_served() -> None:
    """Ready: with a backend, and not draining. Alive: the process."""
    container = pod("prefold")["containers"][0]
    probed = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")]

    assert probed == ["/ready", "/health"]
    assert set(probed) <= {route.path for route in ROUTES}


def test_discovery_names_a_headless_service_of_the_engines(tmp_path: Path) -> None:
    """Any other Service has one address, and its connections go to any pod."""
    dns = urlsplit(kubernetes_settings(tmp_path).discovery.dns)
    service = kubernetes("Service")[str(dns.hostname)]

    assert service["spec"]["clusterIP"] == "None"
    assert dns.port in [port["port"] for port in service["spec"]["ports"]]
    assert urlsplit(kubernetes_settings(tmp_path).redis.url).hostname in kubernetes("Service")


def test_services_and_budgets_select_pods_that_there_are() -> None:
    """By labels, and by the names of their ports."""
    templates = [one["spec"]["template"] for one in kubernetes("Deployment").values()]
    budgets = kubernetes("PodDisruptionBudget").values()
    services = kubernetes("Service").values()
    selectors = [one["spec"]["selector"]["matchLabels"] for one in budgets]
    for labels in [*selectors, *(one["spec"]["selector"] for one in services)]:
        assert any(labels.items() <= one["metadata"]["labels"].items() for one in templates)
    for service in services:
        ports = {
            port["name"]
            for one in templates
            if service["spec"]["selector"].items() <= one["metadata"]["labels"].items()
            for container in one["spec"]["containers"]
            for port in container["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_the_image_holds_all_packages_and_runs_without_rights() -> None:
    """A folder that is not copied would be a link to nothing; extras must exist."""
    file = (ROOT / "Dockerfile").read_text("utf-8")
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    installed = re.search(r"'\.\[([^\]]+)\]'", file)

    assert all(f"COPY {folder} ./{folder}" in file for folder in FOLDERS)
    assert all(f"!{folder}" in ignore for folder in FOLDERS)
    assert installed is not None
    assert set(installed[1].split(",")) <= set(extras["optional-dependencies"])
    assert re.findall(r"^USER (\d+:\d+)", file, re.MULTILINE) == ["10001:10001"]
    assert "groupadd --gid 10001 prefold" in file
    assert "libgomp1" in file, "the engine does not start without OpenMP"


def test_redis_takes_connections_of_other_containers() -> None:
    """The official image patches that default; another one would keep the replicas apart."""
    [container] = pod("prefold-redis")["containers"]
    for arguments in (compose()["services"]["redis"]["command"], container["args"]):
        assert arguments[arguments.index("--protected-mode") + 1] == "no"
