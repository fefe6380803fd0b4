"""Our own OpenAPI description: valid, complete, and true of the running proxy to schemathesis.

schemathesis runs as a process of its own: its plugin and its event loop are not those of the tests.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from prefold.proxy.admin import NewBackend, admin_app
from prefold.proxy.openapi import described_paths, document
from prefold.proxy.routes import ROUTES
from tests.support.proxy import proxy_before
from tests.support.upstream import scripted, whole

PATTERN = re.compile(r"{(\w+):[^}]*}")
SCHEMATHESIS = Path(sysconfig.get_path("scripts")) / "schemathesis"
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "choices": [],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
)
# 501 is an answer here: paths with state have no backend for it.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", 501]
[[operations]]
include-method = "POST"
include-path = "/backends"
generation.mode = "negative"
"""


def test_the_document_is_valid_openapi() -> None:
    """By the specification's own schema, references resolved."""
    validate(document("http://127.0.0.1:8000", "http://127.0.0.1:8001"))


def test_every_route_of_the_data_port_is_described() -> None:
    """And nothing else: the document is made from the table of routes."""
    paths = document("http://data", "http://admin")["paths"]
    served = {path for route in ROUTES for path, _ in described_paths(route.path)}
    assert served == {
        path for path, item in paths.items() if item["servers"][0]["url"] == "http://data"
    }
    for route in ROUTES:
        for path, _ in described_paths(route.path):
            assert route.method == "*" or route.method.lower() in paths[path]


async def test_every_route_of_the_admin_port_is_described() -> None:
    """And nothing else."""
    paths = document("http://data", "http://admin")["paths"]
    described = {
        (method.upper(), path)
        for path, item in paths.items()
        for method in item
        if item["servers"][0]["url"] == "http://admin" and method not in ("servers", "parameters")
    }
    async with scripted(whole(ANSWER)) as upstream, proxy_before([upstream.url]) as server:
        routes = admin_app(server.proxy).router.routes()
        served = {
            (route.method, PATTERN.sub(r"{\1}", route.resource.canonical))
            for route in routes
            if route.resource is not None and route.method != "HEAD"
        }
    assert described == served


def test_a_new_backend_is_described_with_the_members_that_are_read() -> None:
    """The struct decides; the document repeats it with the form of a URL."""
    described = document("http://data", "http://admin")["components"]["schemas"]["NewBackend"]
    assert set(described["properties"]) == set(NewBackend.__struct_fields__)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("port", ["data", "admin"])
async def test_answers_are_those_that_are_described(port: str, tmp_path: Path) -> None:
    """No 500; statuses, content types and bodies are declared, for right and wrong requests."""
    async with scripted(whole(ANSWER)) as upstream, proxy_before([upstream.url]) as server:
        url = server.url if port == "data" else server.admin_url
        described = document(server.url, server.admin_url)
        status, said = await schemathesis(tmp_path, described, url, port)
        assert status == 0, said


async def schemathesis(
    folder: Path, described: dict[str, Any], url: str, tag: str
) -> tuple[int, str]:
    """Exit status and output of one run over the operations with that tag."""
    schema, config = folder / "openapi.json", folder / "schemathesis.toml"
    schema.write_text(json.dumps(described))
    config.write_text(CONFIG)
    arguments = [f"--config-file={config}", "run", str(schema), f"--url={url}"]
    options = [f"--include-tag={tag}", f"--checks={','.join(CHECKS)}", "--max-examples=8"]
    fixed = ["--seed=1", "--no-color", "--request-timeout=10", "--suppress-health-check=all"]
    command = [str(SCHEMATHESIS), *arguments, *options, *fixed]
    return await asyncio.to_thread(_run, command, folder)


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=folder,  # it leaves its own files where it runs
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=150,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")[-6000:]
