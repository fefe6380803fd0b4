"""What of compression may change while requests pass, and what conversations keep of before."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.proxy.compression.switch import HEADER
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend, Compression, Settings
from tests.support.prose import prose
from tests.support.proxy import BASE, until
from tests.support.requirements import skip_or_fail
from tests.support.upstream import ScriptedUpstream, scripted, whole
from tests.support.workers import Connection, eventually, workers
from tests.wire.raw_client import post

PATH = "/v1/chat/completions"
ANSWER = whole({"id": "a", "choices": [{"message": {"role": "assistant", "content": "Yes."}}]})
RULES = Compression(mode="on", min_tokens=100, min_chars=200, deadline_s=10.0)


@pytest.fixture(autouse=True)
def _wordfreq() -> None:
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")


class Scene:
    """A proxy whose settings the test writes."""

    def __init__(self, upstream: ScriptedUpstream, server: Running, settings: Settings) -> None:
        self.upstream = upstream
        self.server = server
        self.settings = settings

    def become(self, **changes: Any) -> tuple[str, ...]:
        """What takes a restart."""
        changed = replace(self.settings.compression, **changes)
        self.settings = replace(self.settings, compression=changed)
        return self.server.proxy.reloader.reload().restart

    async def sent(self, body: dict[str, Any]) -> tuple[str, list[Any]]:
        """What the header says, and the messages as the backend got them."""
        async with (
            aiohttp.ClientSession(self.server.url) as http,
            http.post(PATH, json=body) as answer,
        ):
            assert answer.status == 200
            messages: list[Any] = json.loads(self.upstream.received[-1].body)["messages"]
            return answer.headers.get(HEADER, ""), messages


@asynccontextmanager
async def scene(**rules: Any) -> AsyncIterator[Scene]:
    """Whose compressor is ready, if there is one."""
    async with scripted(ANSWER) as upstream:
        backends = (Backend(name="b0", url=upstream.url),)
        settings = replace(BASE, backends=backends, compression=replace(RULES, **rules))
        made: list[Scene] = []
        async with running(settings, reload=lambda: made[0].settings) as server:
            made.append(Scene(upstream, server, settings))
            for backend in server.proxy.pool:
                await server.proxy.monitor.probe(backend)
            if (compression := server.proxy.compression) is not None:
                pool = compression.pool
                await until(lambda: pool.up > 0, tries=3000)
            yield made[0]


def rag(*documents: str, before: list[Any] | None = None) -> dict[str, Any]:
    """A turn, after those of `before`."""
    parts = [{"type": "text", "text": text} for text in (*documents, "What was counted?")]
    said = [*before, {"role": "assistant", "content": "Crates."}] if before else []
    return {"model": "m", "messages": [*said, {"role": "user", "content": parts}]}


def share(messages: list[Any], document: str, turn: int = 0) -> float:
    """Of its words."""
    return len(messages[turn]["content"][0]["text"].split()) / len(document.split())


async def test_another_rate_is_for_what_is_new() -> None:
    """A conversation's earlier messages go out byte for byte as they did."""
    async with scene() as made:
        first = rag(prose(1, 40))
        _, sent = await made.sent(first)
        assert share(sent, prose(1, 40)) == pytest.approx(0.5, abs=0.1)
        assert made.become(rate=0.25) == ()
        _, then = await made.sent(rag(prose(2, 40), before=first["messages"]))
        assert then[0] == sent[0]
        assert share(then, prose(2, 40), 2) == pytest.approx(0.25, abs=0.1)
        assert made.become(rate=0.8) == ()
        second = rag(prose(2, 40), before=first["messages"])
        _, last = await made.sent(rag(prose(3, 40), before=second["messages"]))
        assert last[:3] == then
        assert share(last, prose(3, 40), 4) == pytest.approx(0.8, abs=0.1)


async def test_another_least_length_is_for_what_is_new() -> None:
    """And a lower one lets shorter texts in."""
    async with scene(min_chars=600) as made:
        first = rag(prose(1, 40))
        _, sent = await made.sent(first)
        made.become(min_chars=100_000)
        _, then = await made.sent(rag(prose(2, 40), before=first["messages"]))
        assert then[0] == sent[0]
        assert share(then, prose(2, 40), 2) == 1.0
        made.become(min_chars=100)
        _, last = await made.sent(rag(prose(3, 40)))
        assert share(last, prose(3, 40)) < 0.7


async def test_mode_and_deadline_change_in_place() -> None:
    """Off and on again, for all requests that come then."""
    async with scene(mode="off", by_header=True) as made:
        assert (await made.sent(rag(prose(1, 40))))[0] == ""
        assert made.become(mode="on", by_header=False, deadline_s=9.0, margin_s=0.5) == ()
        assert "form=compressed" in (await made.sent(rag(prose(2, 40))))[0]
        assert made.become(mode="off") == ()
        assert (await made.sent(rag(prose(3, 40))))[0] == ""
        assert made.become(mode="shadow") == ()
        assert "form=shadow" in (await made.sent(rag(prose(4, 40))))[0]


async def test_what_makes_the_compressor_or_the_segments_takes_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is named, stays as it was, and the rest is taken over."""
    async with scene() as made:
        restart = made.become(
            compressor="null", documents=("parts",), tools=True, workers=3, rate=0.25
        )
        assert restart == (
            "compression.compressor",
            "compression.documents",
            "compression.tools",
            "compression.workers",
        )
        told, sent = await made.sent(rag(prose(1, 40)))
        assert "compressor=lexical" in told
        assert share(sent, prose(1, 40)) == pytest.approx(0.25, abs=0.1)
        assert "take a restart: compression.compressor, compression.documents" in caplog.text
        in_force = made.server.proxy.reloader.settings.compression
        assert (in_force.compressor, in_force.workers, in_force.rate) == ("lexical", 1, 0.25)


async def test_without_a_compressor_there_is_nothing_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where nothing could be compressed none was started: all of it takes a restart."""
    caplog.set_level(logging.INFO)
    async with scene(mode="off") as made:
        assert made.become(mode="on", rate=0.3) == ("compression.mode", "compression.rate")
        assert (await made.sent(rag(prose(1, 40))))[0] == ""
        assert made.server.proxy.reloader.settings.compression.mode == "off"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_all_workers_are_told_also_one_that_is_started_again() -> None:
    """By a reload of the parent."""
    table = {"mode": "shadow", "min_tokens": 100, "min_chars": 200, "deadline_s": 10.0}
    async with (
        scripted(ANSWER) as upstream,
        workers([upstream.url], {"compression": table}) as made,
    ):
        settings = made.config.read_text()
        changed = re.sub(r'mode *= *"shadow"', 'mode = "on"', settings)
        assert changed != settings
        made.config.write_text(changed)
        told = (await made.admin("POST", "/reload")).json()
        assert told["restart_needed_for"] == []
        number = 0

        async def compresses(worker: Connection) -> bool:
            nonlocal number
            number += 1
            body = json.dumps(rag(prose(number, 40))).encode()
            answer = await worker.ask(post(PATH, body, {}))
            return "mode=on; form=compressed" in (answer.header(HEADER) or "")

        old = made.pids()
        for pid in old:
            worker = await made.connect(pid)
            await eventually(lambda worker=worker: compresses(worker), tries=1000)
        os.kill(old[0], signal.SIGKILL)

        async def replaced() -> bool:
            return len(made.pids()) == 2 and old[0] not in made.pids()

        await eventually(replaced, tries=1000)
        await made.until_ready(1)
        worker = await made.connect(max(made.pids()))
        await eventually(lambda: compresses(worker), tries=1000)
