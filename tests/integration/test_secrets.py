"""No text and no key leaves: a real process with debug logs, sentinels in every place that a client
or an upstream can write to, and upstreams that fail in every phase."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.proxy import until
from tests.support.tiny_tokenizer import tiny_bpe, write_folder
from tests.support.upstream import (
    DONE,
    END,
    Script,
    ScriptedUpstream,
    Step,
    chunk,
    delta,
    event,
    head,
    scripted,
    whole,
)

PROMPT = "sentinelprompt"
CLIENT_KEY, WRONG_KEY, QUERY_KEY = "sentinelkey", "sentinelwrong", "sentinelquery"
ADMIN_KEY, ENGINE_KEY, SECRET = "sentineladmin", "sentinelengine", "sentinelsecret"
JUNK = "sentineljunk"
SENTINEL = re.compile(rb"sentinel[a-z0-9]*", re.IGNORECASE)
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": PROMPT}],
    "prompt_cache_key": PROMPT,
}
STREAMED = {**CHAT, "stream": True}
AUTHORIZED = {
    "Authorization": f"Bearer {CLIENT_KEY}",
    "X-Team": PROMPT,
    "X-Session-ID": PROMPT,
    "User-Agent": PROMPT,
}
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
QUOTING = f"HTTP/1.1 200 OK\r\nX-{PROMPT}"

# An upstream's failures, with the prompt in whatever a message about them could quote.
FAILURES: dict[str, Script] = {
    "closed": [Step.CLOSE],
    "reset": [Step.RESET],
    "no http": [PROMPT.encode() + b"\r\n\r\n", Step.CLOSE],
    "a head that is cut": [QUOTING.encode(), Step.CLOSE],
    "a wrong header": [f"{QUOTING} {PROMPT}\r\n\r\n".encode(), Step.CLOSE],
    "a wrong length": [f"{QUOTING}: 1\r\nContent-Length: {PROMPT}\r\n\r\n".encode(), Step.CLOSE],
    "a wrong chunk": [head(), f"{PROMPT}\r\n".encode(), Step.CLOSE],
    "a wrong coding": [head(200, "application/json", "Content-Encoding: gzip"), chunk(b"x"), END],
    "no json": [head(200, "application/json"), chunk(PROMPT.encode()), END],
    "an error": whole({"error": {"message": "no", "type": "x", "param": None, "code": None}}, 500),
    "a refusal": whole({"detail": "no"}, 429),
    "a cut body": [head(200, "application/json"), chunk(b'{"id": "'), Step.RESET],
    "a cut stream": [head(), chunk(delta(PROMPT)), Step.RESET],
    "a stream of junk": [head(), chunk(f"data: {PROMPT}\n\n".encode()), chunk(DONE), END],
    "an error event": [head(), chunk(event(error={"message": "no", "code": 500})), END],
    "an endless event": [head(), chunk(b"data: " + PROMPT.encode()), END],
    "a redirect": whole({}, 307, f"Location: http://127.0.0.1:9/{PROMPT}"),
}


@dataclass(frozen=True, slots=True)
class Running:
    http: aiohttp.ClientSession
    upstream: ScriptedUpstream
    process: subprocess.Popen[bytes]
    url: str
    admin: str
    out: Path

    def said(self) -> bytes:
        """Ends the process; all that it printed."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0
        return self.out.read_bytes()


def written_settings(folder: Path, url: str) -> Path:
    (folder / "engine-key").write_text(ENGINE_KEY + "\n")
    tokenizer = write_folder(folder / "tokenizer", tiny_bpe())
    path = folder / "prefold.toml"
    path.write_text(f"""
        [server]
        port = 0
        admin_port = 0
        lame_duck_s = 0
        drain_s = 0
        admin_key = "{ADMIN_KEY}"
        [routing]
        secret = "{SECRET}"
        tenant_header = "X-Team"
        [health]
        failures_to_eject = 1000
        [[backends]]
        name = "b0"
        url = "{url}"
        api_key_file = "{folder / "engine-key"}"
        [[keys]]
        tenant = "a"
        sha256 = "{sha256(CLIENT_KEY.encode()).hexdigest()}"
        [models.m]
        tokenizer = "{tokenizer}"
        """)
    return path


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with scripted(whole({"id": "c1", "choices": []})) as upstream:
        config = written_settings(tmp_path, upstream.url)
        out = tmp_path / "out"
        with process_with(config, out) as process:
            await until(lambda: addresses(process, out), tries=3000)
            found = addresses(process, out)
            assert found is not None
            async with aiohttp.ClientSession() as http:
                await _until_ready(http, found[0])
                yield Running(http, upstream, process, *found, out)


@contextmanager
def process_with(config: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-X", "dev", "-m", "prefold.proxy.cli", "serve"]
    with out.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--config", str(config), "--log-level", "debug"],
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def addresses(process: subprocess.Popen[bytes], out: Path) -> tuple[str, str] | None:
    """Of the data and the admin port, once they are there."""
    assert process.poll() is None, out.read_text()
    found = re.search(rb"listens on (\S+), admin on (\S+)", out.read_bytes())
    return (found[1].decode(), found[2].decode()) if found else None


async def _until_ready(http: aiohttp.ClientSession, url: str) -> None:
    while True:
        async with http.get(f"{url}/ready") as answer:
            if answer.status == 200:
                return
        await asyncio.sleep(0.05)


async def asked(made: Running, path: str, **options: Any) -> bytes:
    """The answer's head and body; what was cut is what there was."""
    seen = b""
    options.setdefault("headers", AUTHORIZED)
    try:
        async with made.http.post(made.url + path, **options) as answer:
            seen += repr(answer.raw_headers).encode()
            async for piece in answer.content.iter_any():
                seen += piece
    except aiohttp.ClientPayloadError:
        pass
    return seen


async def sent(made: Running, data: bytes) -> bytes:
    """Raw bytes, for what a client library would not send."""
    reader, writer = await asyncio.open_connection(*made.url.removeprefix("http://").split(":"))
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def watched(made: Running) -> bytes:
    """What operators see."""
    seen = b""
    for path in ("/metrics", "/report", "/backends"):
        async with made.http.get(made.admin + path, headers=ADMIN) as answer:
            assert answer.status == 200
            seen += await answer.read()
    return seen


async def test_whatever_fails_nothing_is_told_of_it(running: Running) -> None:
    """Logs, metrics and reports hold no text of a prompt and no key, and the engine no key of ours;
    a client gets back what the engine sent, and no credentials."""
    told = b""
    for script in FAILURES.values():
        running.upstream.scripts[:] = [script]
        for path, body in (
            ("/v1/chat/completions", CHAT),
            ("/v1/chat/completions", STREAMED),
            ("/v1/completions", {"model": "m", "prompt": PROMPT}),
            ("/v1/responses", {"model": "m", "input": PROMPT, "stream": True}),
            ("/v1/messages", {**STREAMED, "max_tokens": 1}),
            ("/v1/embeddings", {"model": "m", "input": PROMPT}),
        ):
            told += await asked(running, f"{path}?api_key={QUERY_KEY}", json=body)
    shown = await watched(running)
    printed = running.said()

    assert len(running.upstream.received) >= 6 * len(FAILURES)
    assert not SENTINEL.findall(shown)
    assert not SENTINEL.findall(printed)
    assert printed.count(b"INFO prefold.requests ") == 6 * len(FAILURES)
    assert {*SENTINEL.findall(told)} == {PROMPT.encode()}
    for request in running.upstream.received:
        assert CLIENT_KEY.encode() not in request.head
        assert request.headers["authorization"] == f"Bearer {ENGINE_KEY}"


async def test_what_is_refused_is_not_quoted(running: Running) -> None:
    """Bodies that cannot be read, requests that are no HTTP, wrong keys, unknown models and paths:
    the client is told which kind of mistake it is, and nobody what was in it."""
    told = [
        await asked(running, "/v1/chat/completions", data=body)
        for body in (
            f'{{"model": "{PROMPT}'.encode(),
            f'{{"messages": {{"{PROMPT}": NaN}}}}'.encode(),
            f'{{"model": "m", "messages": "{PROMPT}", "stream": "{PROMPT}"}}'.encode(),
            f'{{"model": "{JUNK}", "messages": []}}'.encode(),
            f'{{"model": ["{PROMPT}"]}}'.encode(),
            b'{"a":' * 100 + PROMPT.encode(),
            b"\xff" + PROMPT.encode(),
        )
    ]
    told += [await asked(running, f"/v1/{JUNK}{n}?api_key={QUERY_KEY}", json=CHAT) for n in (1, 2)]
    told += [await asked(running, f"/v1/responses/{JUNK}", json=CHAT)]
    wrong = {"Authorization": f"Bearer {WRONG_KEY}", "api-key": WRONG_KEY}
    told += [await asked(running, "/v1/chat/completions", json=CHAT, headers=wrong)]
    told += [await asked(running, "/v1/files", data={"purpose": PROMPT})]
    told += [
        await sent(running, data.encode())
        for data in (
            f"{PROMPT}\r\n\r\n",
            f"GET /{JUNK} HTTP/1.1\r\nAuthorization Bearer {CLIENT_KEY}\r\n\r\n",
            f"POST /v1/embeddings HTTP/1.1\r\nContent-Length: {PROMPT}\r\n\r\n",
            f"POST /v1/embeddings HTTP/1.1\r\nX: {PROMPT * 9000}\r\n\r\n",
            f"POST /v1/embeddings HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{PROMPT}\r\n",
            f"POST /v1/embeddings HTTP/1.1\r\nContent-Length: 99\r\n\r\n{PROMPT}",
        )
    ]
    shown = await watched(running)
    async with running.http.get(running.admin + "/report", headers=wrong) as answer:
        assert answer.status == 401
        told.append(await answer.read())
    printed = running.said()

    assert all(told)
    for text in (*told, shown, printed):
        assert not SENTINEL.findall(text), text


async def test_junk_makes_no_series(running: Running) -> None:
    """Names that clients invent are not kept: neither in the metrics, where each would be one more
    for ever, nor in the report."""
    before = {line.partition(b" ")[0] for line in (await watched(running)).splitlines()}
    await asked(running, "/v1/chat/completions", json={**CHAT, "model": JUNK})
    await asked(running, f"/{JUNK}", json=CHAT)
    once = {line.partition(b" ")[0] for line in (await watched(running)).splitlines()}
    for n in range(20):
        await asked(running, "/v1/chat/completions", json={**CHAT, "model": f"{JUNK}{n}"})
        await asked(running, f"/{JUNK}{n}", json=CHAT)
    after = {line.partition(b" ")[0] for line in (await watched(running)).splitlines()}

    series = {name for name in after if name.startswith(b"prefold_")}
    assert series
    assert series == {name for name in once if name.startswith(b"prefold_")}
    assert len(series - before) < 20
