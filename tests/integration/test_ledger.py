"""The ledger behind a real proxy: what it holds of requests, what it does not, and its faults."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from prefold.proxy.cli import main
from prefold.proxy.settings import Key, Ledger, Settings
from tests.support.ledger import rows_of
from tests.support.proxy import BASE, proxy_before
from tests.support.telling_engine import telling_engine
from tests.support.upstream import DONE, Step, chunk, delta, event, head, scripted, stream, whole
from tests.support.workers import SERVER, eventually, workers
from tests.wire.raw_client import post

USAGE = event(
    object="chat.completion.chunk",
    choices=[],
    usage={
        "prompt_tokens": 900,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 512},
    },
)
SIMULATE = ("--policy", "prefold", "--cache-tokens", "1000000", "--prefill-rate", "1000000")
ANSWER = stream(
    delta("", role="assistant"), delta("a"), delta("b"), delta(finish="stop"), USAGE, DONE
)


def kept_at(path: Path, **more: Any) -> Settings:
    return replace(BASE, ledger=Ledger(path=str(path), **more))


def chat(*texts: str, **members: Any) -> Mapping[str, Any]:
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(texts)
    ]
    return {"model": "m", "stream": True, "messages": messages, **members}


async def asked(http: aiohttp.ClientSession, body: Mapping[str, Any], **headers: str) -> int:
    async with http.post("/v1/chat/completions", json=body, headers=headers) as answer:
        await answer.read()
        return answer.status


async def test_every_request_is_a_row(tmp_path: Path) -> None:
    """However it ended: with its moments in order, its tokens, and what the engine said."""
    path = tmp_path / "l"
    async with (
        scripted(ANSWER) as up,
        proxy_before([up.url], settings=kept_at(path)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        named = {"X-Request-Id": "x1"}
        assert await asked(http, chat("hi " * 2000, "u", "more"), **named) == 200
        assert await asked(http, chat("hi " * 2000)) == 200
        assert await asked(http, {**chat("hi"), "model": "none"}) == 404

    one, two, refused = rows_of(path)
    assert (one.request_id, one.backend, one.outcome, one.status) == ("x1", "b0", "ok", 200)
    order = [one.parsed, one.encoded, one.matched, one.leased, one.sent, one.headers]
    order += [one.first_event, *one.tokens, one.end]
    assert None not in order
    assert order == sorted(order, key=lambda moment: moment or 0.0)
    assert len(one.tokens) == 2
    assert [kind for _, kind in one.other_events] == ["role", "finish", "usage", "done"]
    assert (one.prompt_tokens, one.reported_tokens, one.output_tokens) == (900, 512, 3)
    assert (one.mode, one.original_tokens) == ("approximate", None)
    assert one.prefix_tokens is not None
    assert len(one.blocks) == one.prefix_tokens // 512 == 2
    assert one.conversation == two.conversation is not None
    assert one.blocks == two.blocks
    assert (refused.outcome, refused.error, refused.backend) == (
        "rejected",
        "model_not_found",
        None,
    )


async def test_failures_are_rows_too(tmp_path: Path) -> None:
    """With the class of the failure, and the tokens that came before it."""
    path = tmp_path / "l"
    broken: list[bytes | Step] = [head(), chunk(delta("a")), Step.RESET]
    async with (
        scripted(broken) as up,
        proxy_before([up.url], settings=kept_at(path)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await asked(http, chat("hi"))

    [row] = rows_of(path)
    assert (row.outcome, row.error, row.status) == ("upstream_failed", "UpstreamDisconnected", 200)
    assert len(row.tokens) == 1


async def test_no_text_and_no_key_is_in_the_files(tmp_path: Path) -> None:
    """Neither of prompts nor of answers nor of headers; also the tenant's key is not."""
    path = tmp_path / "l"
    secret = "QWERTYUIOP"
    settings = replace(kept_at(path), keys=(Key(tenant="acme", sha256=_sha(secret)),))
    answers = stream(delta(secret), delta(finish="stop"), DONE)
    async with (
        scripted(answers) as up,
        proxy_before([up.url], settings=settings) as server,
        aiohttp.ClientSession(server.url, headers={"Authorization": f"Bearer {secret}"}) as http,
    ):
        sent = chat(f"{secret} " * 500, user=secret, tools=[{"name": secret}])
        assert await asked(http, sent, **{"X-Session-ID": secret}) == 200

    [row] = rows_of(path)
    assert row.tenant == "acme"
    assert len(row.blocks) > 1
    _check_files(tmp_path, secret)


async def test_without_digests_nothing_tells_prompts_apart(tmp_path: Path) -> None:
    """And no secret is kept."""
    path = tmp_path / "l"
    async with (
        scripted(ANSWER) as up,
        proxy_before([up.url], settings=kept_at(path, digests=False)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        assert await asked(http, chat("hi " * 2000)) == 200

    [row] = rows_of(path)
    assert (row.blocks, row.conversation, row.prefix_tokens) == ([], None, None)
    assert not (tmp_path / "l.key").exists()


async def test_digests_mean_the_same_after_a_restart(tmp_path: Path) -> None:
    """The secret is kept; and one that the settings give is used in its place."""
    path = tmp_path / "l"
    given = replace(kept_at(path), routing=replace(BASE.routing, secret="s" * 20))
    for settings in (kept_at(path), kept_at(path), given):
        async with (
            scripted(ANSWER) as up,
            proxy_before([up.url], settings=settings) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            assert await asked(http, chat("hi " * 2000)) == 200

    one, two, other = rows_of(path)
    assert (one.blocks, one.conversation) == (two.blocks, two.conversation)
    assert not set(one.blocks) & set(other.blocks)


async def test_a_ledger_that_cannot_be_written_fails_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said in the log and the metrics; what waited is there when it can be."""
    path = tmp_path / "l"
    path.mkdir()
    async with (
        scripted(ANSWER) as up,
        proxy_before([up.url], settings=kept_at(path)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):

        async def faulted() -> bool:
            return b"prefold_ledger_faulted 1.0" in server.proxy.metrics.exposition()

        assert await asked(http, chat("hi")) == 200
        await eventually(faulted)
        assert await asked(http, chat("hi")) == 200
        assert caplog.text.count("cannot be written") == 1
        path.rmdir()

    assert len(rows_of(path)) == 2


async def test_workers_records_are_written_by_the_parent(tmp_path: Path) -> None:
    """All of them, whichever worker had the request; digests are the same for all."""
    path = tmp_path / "l"
    answer = whole({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
    tables = {"server": SERVER, "ledger": {"path": str(path)}}
    body = json.dumps({**chat("hi " * 2000), "stream": False}).encode()
    async with scripted(answer) as up, workers([up.url], tables) as serving:
        for pid in serving.pids():
            connection = await serving.connect(pid)
            for _ in range(5):
                got = await connection.ask(post("/v1/chat/completions", body))
                assert got.status == 200

        async def written() -> bool:
            total = await serving.proxy.total("prefold_ledger_requests_total", "result")
            return total == {"written": 10, "dropped": 0}

        await eventually(written)

    rows = [row for row in rows_of(path) if row.endpoint == "/v1/chat/completions"]
    assert len(rows) == 10
    assert len({tuple(row.blocks) for row in rows}) == 1
    assert rows[0].blocks


async def test_a_trace_of_real_traffic_is_simulated(tmp_path: Path) -> None:
    """Exact tokens through proxy, ledger, export and simulation: an unbounded cache reuses just the
    full blocks of 512 that some earlier prompt began with."""
    pytest.importorskip("zmq")
    path, trace, out = tmp_path / "l", tmp_path / "trace.jsonl", tmp_path / "out.json"
    texts = ["hello and hello " * 150, "ok", "12 " * 400, "us", "again"]
    prompts = [chat(*texts[:turns], stream=False) for turns in (1, 3, 5)]
    prompts.append(chat("other " * 300, stream=False))
    async with (
        telling_engine(tmp_path / "model", enabled=False) as engine,
        proxy_before([engine.url], settings=kept_at(path)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        assert server.proxy.pool["b0"].mode == "feedback"
        for prompt in prompts:
            assert await asked(http, prompt) == 200
        ids = [engine.tokens(prompt["messages"]) for prompt in prompts]
    made = ["ledger", "export", "--ledger", str(path), "--format", "mooncake", "--out", str(trace)]
    exported = CliRunner().invoke(main, made)
    assert (exported.exit_code, exported.stderr) == (0, "4 requests\n")
    simulated = CliRunner().invoke(
        main,
        ["simulate", "--trace", str(trace), "--backends", "1", *SIMULATE, "--json", str(out)],
    )
    assert simulated.exit_code == 0, simulated.output

    reused = 0
    for number, own in enumerate(ids):
        common = [_common(own, earlier) for earlier in ids[:number]]
        reused += max(common, default=0) // 512 * 512
    assert [row.original_tokens for row in rows_of(path)] == [len(own) for own in ids]
    figures = json.loads(out.read_text())
    assert reused > 1024
    assert figures["policies"]["prefold"]["bound_infinite"] == pytest.approx(
        reused / sum(map(len, ids))
    )


def _common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _check_files(folder: Path, secret: str) -> None:
    """None of them has it in it, none is for others to read."""
    files = {file.name: file for file in folder.iterdir()}
    assert {"l", "l.key"} <= set(files)
    for file in files.values():
        assert secret.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_command_tells_what_is_there(tmp_path: Path) -> None:
    """And, of a file that is none, in one line what is wrong."""
    run = CliRunner()
    missing = run.invoke(main, ["ledger", "info", "--ledger", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert missing.stderr.strip() == f"Error: {tmp_path / 'none'}: no such file"
    theirs = sqlite3.connect(tmp_path / "theirs")
    theirs.execute("CREATE TABLE a (b)")
    theirs.close()
    other = run.invoke(main, ["ledger", "export", "--ledger", str(tmp_path / "theirs")])
    assert "a database of something else" in other.stderr
    nowhere = run.invoke(main, ["ledger", "info"])
    assert "no ledger: give --ledger FILE" in nowhere.stderr
