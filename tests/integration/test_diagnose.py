"""`prefold diagnose` beside a real proxy: its ledger, its admin port, and no text of any prompt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from prefold.measurement.ledger.reader import open_ledger
from prefold.measurement.ledger.schema import LedgerError
from prefold.proxy.cli import main
from prefold.proxy.serve import Running
from prefold.proxy.settings import Diagnosis, Ledger, Server, Settings
from tests.support.ledger import rows_of
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import DONE, delta, event, scripted, stream
from tests.support.workers import SERVER, eventually, workers
from tests.wire.raw_client import post

SENTINEL = "xyzzyplugh"
RULES = f" Never say {SENTINEL}, be brief, and name the documents that you have it from." * 20
USAGE = event(
    object="chat.completion.chunk",
    choices=[],
    usage={
        "prompt_tokens": 2500,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 512},
    },
)
ANSWER = stream(
    delta("", role="assistant"), delta("a"), delta("b"), delta(finish="stop"), USAGE, DONE
)
LOOKING = replace(BASE, diagnosis=Diagnosis(divergence=True, divergence_share=1.0))


def body(number: int) -> dict[str, Any]:
    """A minute later than the one before."""
    system = f"Now: 2026-05-01 10:{number % 60:02}. {RULES}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"{SENTINEL}?"}]
    return {"model": "m", "stream": True, "messages": messages}


async def asked(server: Running, count: int) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for number in range(count):
            async with http.post("/v1/chat/completions", json=body(number)) as answer:
                assert answer.status == 200
                await answer.read()


async def page(server: Running, path: str) -> str:
    async with aiohttp.ClientSession(server.admin_url) as http, http.get(path) as answer:
        return await answer.text()


async def diagnosed(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """In a thread: it asks the proxy, whose event loop is this one."""
    run = CliRunner(env=env).invoke
    return await asyncio.to_thread(run, main, ["diagnose", *arguments])


def answers(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return {answer["key"]: answer for answer in json.loads(result.output)["answers"]}


async def test_what_breaks_the_prefix_is_told_without_its_text(tmp_path: Path) -> None:
    """In the metrics, the report and the diagnosis; the prompts' words are nowhere."""
    settings = replace(LOOKING, ledger=Ledger(path=str(tmp_path / "l")))
    async with scripted(ANSWER) as up, proxy_before([up.url], settings=settings) as server:
        await asked(server, 120)
        metrics, report = await page(server, "/metrics"), await page(server, "/report")
        shown = await diagnosed("--admin", server.admin_url)
        as_json = await diagnosed("--admin", server.admin_url, "--json")

    assert 'prefold_prefix_divergences_total{kind="timestamp"} 119.0' in metrics
    assert "prefold_divergence_sampled_requests_total 120.0" in metrics
    found = json.loads(report)["divergence"]
    assert (found["looked_at"], found["alike"]) == (120, 1)
    assert {row["kind"] for row in found["rows"]} == {"timestamp"}
    answer = answers(as_json)["prefix_breaks"]
    assert answer["verdict"] == "known"
    assert "a timestamp between tokens" in answer["sentence"]
    assert "a timestamp between tokens" in " ".join(shown.output.split())
    ledger = (tmp_path / "l").read_bytes()
    for text in (metrics, report, shown.output, as_json.output, ledger.decode("latin-1")):
        assert SENTINEL not in text
        assert "Never say" not in text


async def test_nothing_is_looked_at_unless_it_is_asked_for() -> None:
    """The section is there, and empty."""
    async with scripted(ANSWER) as up, proxy_before([up.url]) as server:
        await asked(server, 3)
        metrics, report = await page(server, "/metrics"), await page(server, "/report")

    assert "prefold_prefix_divergences_total{" not in metrics
    assert json.loads(report)["divergence"] == {"looked_at": 0, "alike": 0, "rows": []}


async def test_figures_of_all_workers_are_summed() -> None:
    """Each compares what it served itself."""
    tables = {"server": SERVER, "diagnosis": {"divergence": True, "divergence_share": 1.0}}
    async with scripted(ANSWER) as up, workers([up.url], tables) as serving:
        for pid in serving.pids():
            connection = await serving.connect(pid)
            for number in range(3):
                request = post("/v1/chat/completions", json.dumps(body(number)).encode())
                assert (await connection.ask(request)).status == 200

        async def summed() -> bool:
            found = await serving.proxy.total("prefold_prefix_divergences_total", "kind")
            return found == {"timestamp": 4}

        await eventually(summed)


async def test_a_ledger_is_diagnosed(tmp_path: Path) -> None:
    """What it is enough for is answered, for the rest it is said what is missing."""
    path = tmp_path / "l"
    async with (
        scripted(ANSWER) as up,
        proxy_before([up.url], settings=replace(BASE, ledger=Ledger(path=str(path)))) as server,
    ):
        await asked(server, 40)
    assert len(rows_of(path)) == 40

    found = answers(await diagnosed("--ledger", str(path), "--json"))

    assert found["inputs_long"]["verdict"] == "yes"  # of 2,500 tokens each
    assert found["ttft_parts"]["verdict"] == "unknown"  # all of one length
    assert found["kv_memory"]["needs"].endswith("(vLLM and SGLang do)")
    assert found["prefix_breaks"]["needs"].startswith("--admin URL")
    shown = await diagnosed("--ledger", str(path))
    assert shown.output.startswith("40 streamed answers, ")


@asynccontextmanager
async def telling_vllm() -> AsyncIterator[str]:
    """One whose cache is nearly full and that preempted requests."""
    gauges = (
        "vllm:num_requests_running 9\nvllm:num_requests_waiting 4\n"
        "vllm:kv_cache_usage_perc 0.97\nvllm:num_preemptions_total 3\n"
    )

    async def ok(request: web.Request) -> web.Response:
        return web.Response()

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "vllm"}]})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=gauges)

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.33.0"})

    app = web.Application()
    app.router.add_get("/health", ok)
    app.router.add_get("/version", version)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/metrics", metrics)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


async def test_what_engines_say_of_their_memory_is_kept_and_shown(tmp_path: Path) -> None:
    """In the ledger while they are at work, and at this moment by the admin port, with its key."""
    path = tmp_path / "l"
    settings: Settings = replace(
        BASE,
        ledger=Ledger(path=str(path)),
        server=Server(port=0, admin_port=0, drain_s=0.0, admin_key="the-admin-key"),
    )
    async with telling_vllm() as url, proxy_before([url], settings=settings) as server:
        await until(lambda: path.exists() and _sampled(path))
        config = tmp_path / "c.toml"
        config.write_text(f'[server]\nadmin_key = "the-admin-key"\n[ledger]\npath = "{path}"\n')
        known = await diagnosed("--config", str(config), "--admin", server.admin_url, "--json")
        refused = await diagnosed("--ledger", str(path), "--admin", server.admin_url)

    memory = answers(known)["kv_memory"]
    figures = {figure["name"]: figure["value"] for figure in memory["figures"]}
    assert memory["verdict"] == "unknown"
    assert "stretches" in memory["needs"]
    assert figures["b0 now: kv usage"] == figures["kv usage p50"] == 0.97
    assert figures["b0 now: waiting"] == 4
    assert refused.exit_code == 1
    assert "needs its key" in refused.output


def _sampled(path: Path) -> bool:
    try:
        with open_ledger(path) as ledger:
            return bool(ledger.engine_samples())
    except LedgerError:
        return False


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "nothing to look at"),
        (["--ledger", "/nowhere/l"], "no such file"),
        (["--admin", "ftp://127.0.0.1"], "ftp://127.0.0.1/backends"),
        (["--admin", "http://127.0.0.1:9"], "http://127.0.0.1:9/backends"),
    ],
)
async def test_what_cannot_be_looked_at_is_said(arguments: list[str], reason: str) -> None:
    """In one line."""
    result = await diagnosed(*arguments)

    assert result.exit_code != 0
    assert reason in result.output
    assert "Traceback" not in result.output
