"""Second attempts: when there is one, when there is none, and what the client gets in the end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.proxy.settings import Retry, Settings, Timeouts
from tests.support.proxy import BASE, proxy_before
from tests.support.upstream import Script, Step, head, scripted, whole

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
GOOD = whole({"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}})
BUSY = whole({"error": {"message": "busy"}}, 429, "Retry-After: 7", "X-Own: 1")
# The head is here, so that no kept-alive connection is to blame.
BROKEN: Script = [head(), Step.RESET]


async def answered(
    scripts: Sequence[Script], *, settings: Settings = BASE, path: str = "/v1/chat/completions"
) -> tuple[int, Any, Any, int]:
    """Status, headers, body and attempts of one request before backends with one script each."""
    async with (
        scripted(scripts[0]) as one,
        scripted(scripts[1]) as two,
        scripted(scripts[-1]) as three,
    ):
        upstreams = [one, two, three][: len(scripts)]
        async with (
            proxy_before([upstream.url for upstream in upstreams], settings=settings) as server,
            aiohttp.ClientSession(server.url) as http,
            http.post(path, json=CHAT) as answer,
        ):
            told = await answer.json()
            assert all(backend.in_flight == 0 for backend in server.proxy.pool)
            attempts = sum(len(upstream.received) for upstream in upstreams)
            return answer.status, answer.headers, told, attempts


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/tokenize"])
@pytest.mark.parametrize("bad", [BROKEN, BUSY, whole({}, 502)], ids=["reset", "429", "502"])
async def test_one_bad_backend_of_two_is_not_seen(bad: Script, path: str) -> None:
    """Whatever the path, and whichever of the two is asked first."""
    for scripts in ([bad, GOOD], [GOOD, bad]):
        status, _, _, attempts = await answered(scripts, path=path)
        assert status == 200
        assert attempts <= 2


async def test_a_request_is_not_tried_on_a_third_backend() -> None:
    """Two attempts, however many backends there are."""
    status, _, told, attempts = await answered([BROKEN, BROKEN, BROKEN])

    assert (status, told["error"]["code"], attempts) == (502, "upstream_failed", 2)


async def test_busy_is_what_a_client_hears_if_the_other_one_fails() -> None:
    """It knows when to come back then: status, Retry-After and body of the busy one."""
    for scripts in ([BUSY, BROKEN], [BROKEN, BUSY], [BUSY, BUSY]):
        status, headers, told, attempts = await answered(scripts)
        assert (status, headers["Retry-After"], headers["X-Own"]) == (429, "7", "1")
        assert told == {"error": {"message": "busy"}}
        assert attempts == 2


async def test_what_says_that_it_must_not_be_retried_is_not() -> None:
    """`x-should-retry: false` holds for us as for the clients, who see it too."""
    told_off = whole({"error": {"message": "draining"}}, 503, "x-should-retry: false")
    status, headers, _, attempts = await answered([told_off, told_off])

    assert (status, headers["x-should-retry"], attempts) == (503, "false", 1)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_silent_backend_is_left_only_where_that_is_allowed(allowed: bool) -> None:
    """It may still be computing: a second prefill doubles the load just when it is high."""
    settings = replace(
        BASE,
        timeouts=Timeouts(first_byte_s=0.2),
        retry=Retry(after_first_byte_timeout=allowed),
    )
    silent: Script = [Step.WAIT]
    status, _, _, attempts = await answered([silent, silent], settings=settings)

    assert (status, attempts) == (504, 2 if allowed else 1)


async def test_a_request_that_broke_two_backends_is_refused_until_it_is_answered() -> None:
    """A poison request must not take the fleet down, one client retry after the other."""
    async with (
        scripted(BROKEN) as one,
        scripted(BROKEN) as two,
        scripted(GOOD) as three,
        proxy_before([one.url, two.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        codes = []
        for _ in range(3):
            async with http.post("/v1/chat/completions", json=CHAT) as answer:
                codes.append((await answer.json())["error"]["code"])
        assert codes == ["upstream_failed", "request_breaks_backends", "request_breaks_backends"]
        assert len(one.received) + len(two.received) == 2
        one.scripts, two.scripts = three.scripts, three.scripts
        async with http.post("/v1/chat/completions", json={**CHAT, "seed": 1}) as answer:
            assert answer.status == 200


async def test_an_outage_is_not_doubled() -> None:
    """The budget: after ten saved attempts, one request in ten is tried twice."""
    busy = whole({"error": {"message": "busy"}}, 503)
    async with (
        scripted(busy) as one,
        scripted(busy) as two,
        proxy_before([one.url, two.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        for _ in range(60):
            async with http.post("/v1/chat/completions", json=CHAT) as answer:
                assert answer.status == 503
        attempts = len(one.received) + len(two.received)

    assert 60 + 10 <= attempts < 60 + 30  # and one for each second that this took


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (whole({"object": "error", "message": "too long", "code": 400}, 400), 400, "too long"),
        (whole({"error": "queue full"}, 500), 500, "queue full"),
        (whole({"detail": "no such thing"}, 422), 422, "no such thing"),
        (whole(["odd"], 418), 418, "The backend answered 418."),
        (whole({"error": {"message": "bad", "code": 400}}), 400, "bad"),
        (whole({"error": {"message": "odd", "code": "x"}}), 502, "odd"),
        (whole({"error": "odd"}), 502, "odd"),
    ],
)
async def test_errors_of_all_shapes_become_one(answer: Script, status: int, message: str) -> None:
    """openai-node loses the message of other forms, and takes an error in a 200 for an answer."""
    got, headers, told, _ = await answered([answer, answer])

    assert (got, told["error"]["message"]) == (status, message)
    assert headers["Content-Type"] == "application/json"


async def test_errors_pass_as_they_are_where_that_is_wanted() -> None:
    """`server.normalise_errors = false`."""
    settings = replace(BASE, server=replace(BASE.server, normalise_errors=False))
    odd = {"object": "error", "message": "too long"}

    assert (await answered([whole(odd, 400)] * 2, settings=settings))[::2] == (400, odd)
    assert (await answered([whole({"error": "x"})] * 2, settings=settings))[::2] == (
        200,
        {"error": "x"},
    )


async def test_a_redirect_is_not_followed_nor_passed() -> None:
    """A client would carry the prompt to wherever it points."""
    elsewhere = whole({}, 307, "Location: http://127.0.0.1:9/")
    status, headers, told, _ = await answered([elsewhere, elsewhere])

    assert (status, told["error"]["code"]) == (502, "upstream_failed")
    assert "Location" not in headers
