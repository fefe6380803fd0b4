"""The services of docker-compose.yml as processes on this machine, from the same files: two
proxies, two engines, Redis, Prometheus. Only addresses differ, and where secrets lie.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.promql import ALERTS, CONFIG, ROOT
from tests.support.prometheus_server import answers, prometheus, query, wait_for
from tests.support.redis_server import redis_server

SECRETS = {"admin-key": "admin-key-of-this-test", "prefold-secret": "secret-of-this-test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that said where it listens."""

    process: subprocess.Popen[str]
    urls: Sequence[str]

    def end(self) -> int:
        """SIGTERM; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    proxies: Sequence[Server]
    engines: Sequence[Server]
    prometheus: str

    def value(self, expression: str) -> float:
        """Of a query with one result; -1 while there is none."""
        result = query(self.prometheus, expression)
        return float(result[0]["value"][1]) if result else -1.0


@contextmanager
def topology(folder: Path) -> Iterator[Topology]:
    """Once both proxies serve, know each other, and are scraped."""
    for name, secret in SECRETS.items():
        (folder / name).write_text(secret, encoding="utf-8")
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(folder))
        engine = ("engine", "--port", "0")
        engines = [stack.enter_context(_server(folder, f"engine-{n}", *engine)) for n in (1, 2)]
        config = folder / "prefold.toml"
        config.write_text(_settings(folder, redis.url, [one.urls[0] for one in engines]))
        proxy = ("serve", "--config", str(config), "--host", "127.0.0.1")
        ports = ("--port", "0", "--admin-port", "0")
        proxies = [
            stack.enter_context(_server(folder, f"proxy-{n}", *proxy, *ports)) for n in (1, 2)
        ]
        for one in proxies:
            wait_for(lambda one=one: answers(f"{one.urls[0]}/ready"))
        scraping = folder / "prometheus.yml"
        scraping.write_text(_scraping(folder, [one.urls[1] for one in proxies]))
        url = stack.enter_context(prometheus(scraping, folder))
        made = Topology(proxies=proxies, engines=engines, prometheus=url)
        wait_for(lambda: made.value("sum(prefold_replicas_others)") == 2)
        yield made


def _settings(folder: Path, redis: str, engines: Sequence[str]) -> str:
    """deploy/compose/prefold.toml, with a file that lists the engines in place of Docker's DNS."""
    (folder / "engines.json").write_text(json.dumps([{"url": url} for url in engines]))
    text = (ROOT / "deploy" / "compose" / "prefold.toml").read_text("utf-8")
    for written, here in (
        ('admin_host = "0.0.0.0"', 'admin_host = "127.0.0.1"\nlame_duck_s = 0.2'),
        ("/run/secrets", str(folder)),
        ("redis://redis:6379", redis),
        ('dns = "http://engines:8080"', f'file = "{folder / "engines.json"}"\ninterval_s = 0.5'),
    ):
        assert written in text, f"no {written} in the file that this test stands on"
        text = text.replace(written, here)
    return f"{text}\n[health]\ninterval_s = 0.5\n"


def _scraping(folder: Path, admin_urls: Sequence[str]) -> str:
    """deploy/prometheus/prometheus.yml, each second."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(ALERTS)]
    job = config["scrape_configs"][0]
    job["authorization"]["credentials_file"] = str(folder / "admin-key")
    job["static_configs"] = [{"targets": [url.removeprefix("http://") for url in admin_urls]}]
    return yaml.safe_dump(config)


@contextmanager
def _server(folder: Path, name: str, *arguments: str) -> Iterator[Server]:
    """`prefold ARGUMENTS`, once its log says where it listens."""
    log = folder / f"{name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefold.proxy.cli", *arguments],
            stderr=file,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    try:
        wait_for(lambda: "listens on" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        told = next(line for line in log.read_text().splitlines() if "listens on" in line)
        yield Server(process=process, urls=re.findall(r"http://[0-9.:]+", told))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
