"""Scenarios of security: each plays one case and returns what went wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tests.support.upstream import Script, Step, chunk, delta, head, whole
from tests.wire.fleet import CHAT, MODEL, fleet
from tests.wire.lifecycle import ANSWER, SOUND
from tests.wire.process import admin_request, proxy_process, toml
from tests.wire.raw_client import ask, post

KEY = "leaf-of-the-first-flush"
PLACES = ("Authorization", "x-api-key", "api-key")


async def labels(given: Mapping[str, Any]) -> list[str]:
    """Names that clients make up do not become series."""
    async with fleet(whole(ANSWER)) as running:
        for name in given["names"]:
            await running.ask({"model": name, "messages": []})
            await running.ask({"model": MODEL, "messages": []}, f"/v1/{name}")
            await running.ask({"model": MODEL, "messages": []}, f"/v1/responses/{name}/cancel")
        figures = await ask(running.proxy.admin_url, admin_request("/metrics"))
    return [f"{name} is in /metrics" for name in given["names"] if name.encode() in figures.body]


async def sentinels(given: Mapping[str, Any]) -> list[str]:
    """Keys, prompts and queries show up nowhere, at the most talkative level, whatever breaks."""
    cut: Script = [head(), chunk(delta("SENTINEL-answer")), Step.CLOSE]
    phases: list[Script] = [
        [Step.CLOSE],
        [Step.RESET],
        [b"HTTP/1.1 SENTINEL-head\r\n\r\n"],
        [head(), chunk(b"data: SENTINEL-half"), Step.CLOSE],
        cut,
        whole({"object": "error", "message": "broken", "code": 500}, 500),
        SOUND,
    ]
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "SENTINEL-prompt"}]}
    headers = {"Authorization": "Bearer SENTINEL-key", "x-api-key": "SENTINEL-key"}
    answers = b""
    async with fleet(SOUND, log_level="debug") as running:
        for script in phases:
            running.upstreams[0].received.clear()
            running.upstreams[0].scripts = [script]
            for stream in (True, False):
                path = f"{CHAT}?api_key=SENTINEL-query"
                answer = await running.ask({**asked, "stream": stream}, path, headers)
                answers += answer.body.replace(b"SENTINEL-answer", b"")
        for bad in (b'{"model":"SENTINEL-model"', b'{"model":"SENTINEL-model","messages":[]}'):
            answers += (await ask(running.proxy.url, post(CHAT, bad, headers))).body
        long = {"Authorization": "Bearer SENTINEL-" + "x" * 70000}
        answers += (await running.ask(asked, headers=long)).body
        figures = (await ask(running.proxy.admin_url, admin_request("/metrics"))).body
        report = (await ask(running.proxy.admin_url, admin_request("/report"))).body
        said = "".join(running.proxy.said).encode()
    places = {"logs": said, "metrics": figures, "report": report, "errors": answers}
    return [f"a sentinel in the {name}" for name, text in places.items() if b"SENTINEL" in text]


async def credentials(given: Mapping[str, Any]) -> list[str]:
    """One key, wherever clients put it; a wrong one, none, or two that differ are 401."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    settings = {"keys": [{"tenant": "tea", "sha256": digest}]}
    good = [{name: f"Bearer {KEY}" if name == "Authorization" else KEY} for name in PLACES]
    bad: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}", "x-api-key": "another"},
        {"Authorization": "Bearer wrong", "x-api-key": KEY},
        {"api-key": KEY[:-1]},
    ]
    body = {"model": MODEL, "messages": []}
    wrong = []
    async with fleet(whole(ANSWER), settings=settings) as running:
        for headers in good:
            answer = await running.ask(body, headers=headers)
            wrong += [] if answer.status == 200 else [f"{list(headers)}: {answer.status}"]
            if answer.header("x-prefold-decision") is not None:
                wrong.append("the decision is shown to a tenant")
        for headers in bad:
            answer = await running.ask(body, headers=headers)
            if answer.status != 401 or "error" not in json.loads(answer.body):
                wrong.append(f"{list(headers)}: {answer.status}")
        seen = b"".join(request.head for request in running.upstreams[0].received)
        if len(running.upstreams[0].received) != len(good):
            wrong.append("a request without a key reached the backend")
    return [*wrong, "the key reached the backend"] if KEY.encode() in seen else wrong


async def admin(given: Mapping[str, Any]) -> list[str]:
    """The admin port answers neither other pages nor other names, and with a key nobody else."""
    server = {"port": 0, "admin_port": 0, "admin_key": KEY, "lame_duck_s": 0, "drain_s": 0}
    nobody = {"name": "nobody", "url": "http://127.0.0.1:9"}
    wanted = [
        ({"Host": "127.0.0.1", "Authorization": f"Bearer {KEY}"}, (200,)),
        ({"Host": "127.0.0.1"}, (401,)),
        ({"Host": "127.0.0.1", "Authorization": "Bearer wrong"}, (401,)),
        ({"Host": "127.0.0.1", "Origin": "http://192.0.2.1"}, (401, 403)),
    ]
    wrong = []
    async with fleet(SOUND) as running:
        for headers, status in (({"Origin": "http://192.0.2.1"}, 403), ({"Host": "tea.test"}, 403)):
            asked = {"Host": "127.0.0.1", **headers}
            answer = await ask(running.proxy.admin_url, post("/backends", b"{}", asked))
            wrong += [] if answer.status == status else [f"{headers}: {answer.status}"]
    config = toml({"server": server, "backends": [nobody]})
    async with proxy_process(config, "--log-level", "error") as keyed:
        for headers, statuses in wanted:
            answer = await ask(keyed.admin_url, post("/metrics", b"", headers, "GET"))
            wrong += [] if answer.status in statuses else [f"{sorted(headers)}: {answer.status}"]
    return wrong
