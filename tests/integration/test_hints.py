"""Hints and masks through the real proxy: where requests go, and that their bytes stay."""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp

from prefold.proxy.settings import Mask, Routing
from tests.support.proxy import BASE, proxy_before
from tests.support.upstream import DONE, delta, scripted, stream

GOOD = stream(delta("hi"), delta(finish="stop"), DONE)
BACKENDS = 4


def bodies(count: int) -> list[bytes]:
    """Prompts that begin alike only as JSON does, with a nonce each."""
    return [
        json.dumps(
            {
                "model": "m",
                "stream": True,
                "stream_options": {"include_usage": False},
                "messages": [
                    {"role": "system", "content": f"nonce={number:04};" + "rules " * 200},
                    {"role": "user", "content": "why?"},
                ],
                "prompt_cache_key": "k" if number % 2 else "l",
            }
        ).encode()
        for number in range(count)
    ]


async def homes(
    routing: Routing,
    sent: Sequence[bytes],
    headers: dict[str, str] | None = None,
    masks: tuple[Mask, ...] = (),
) -> list[str]:
    """The backends of requests, one after the other, whose bodies arrived as they were sent."""
    settings = replace(BASE, routing=replace(routing, secret="fixed"), masks=masks)
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(scripted(GOOD)) for _ in range(BACKENDS)]
        server = await stack.enter_async_context(
            proxy_before([one.url for one in upstreams], settings=settings)
        )
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        found = []
        for body in sent:
            async with http.post("/v1/chat/completions", data=body, headers=headers) as answer:
                assert answer.status == 200
                await answer.read()
                found.append(answer.headers["X-Prefold-Decision"].split(";")[0])
        assert sorted(one.body for upstream in upstreams for one in upstream.received) == sorted(
            sent
        )
        return found


async def test_a_cache_key_in_the_body_names_one_of_several_equals() -> None:
    """One place for each key; without the setting, prompts that differ are spread."""
    found = await homes(Routing(), bodies(24))
    assert len(set(found[0::2])) == len(set(found[1::2])) == 1

    off = Routing(prompt_cache_key=False)
    assert len(set(await homes(off, bodies(24)))) == BACKENDS


async def test_a_sessions_header_names_one_of_several_equals() -> None:
    """The headers of the settings, and no other ones."""
    routing = Routing(prompt_cache_key=False, session_headers=("X-My-Session",))

    assert len(set(await homes(routing, bodies(24), {"x-my-session": "s"}))) == 1
    assert len(set(await homes(routing, bodies(24), {"X-Session-ID": "s"}))) == BACKENDS


async def test_a_masked_nonce_does_not_part_a_conversation() -> None:
    """The body goes on with it."""
    routing = Routing(prompt_cache_key=False)
    masks = (Mask(pattern="nonce=[0-9]+;"),)

    assert len(set(await homes(routing, bodies(24), masks=masks))) == 1
