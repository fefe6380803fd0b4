"""SGLang's adapter on replies made after its source; the fixtures name version and files."""

from typing import Any

import msgspec
import pytest

from prefold.backends.detect import detect
from prefold.backends.engine import (
    BlockCapacity,
    Capacity,
    EngineFacts,
    NoPrefixCache,
    ServedModel,
    Usage,
)
from prefold.backends.kv_events.discovery import NoEvents
from prefold.backends.kv_events.subscriber import Source
from prefold.backends.sglang import REPORT, SgLang
from tests.support.replies import fixture, server

NEW, OLD, TWO = "sglang_0.5.23", "sglang_0.5.9", "sglang_0.5.23_two_ranks"


def changed(name: str, **members: Any) -> dict[str, Any]:
    """With other members of /server_info."""
    replies = fixture(name)
    return {**replies, "/server_info": {**replies["/server_info"], **members}}


async def test_it_is_recognised_and_described() -> None:
    """Models and adapters, where the tokenizer lies, pages, load, and what to switch on."""
    async with server(fixture(NEW)) as endpoint:
        engine = await detect(endpoint)
        assert isinstance(engine, SgLang)
        facts = await engine.probe(endpoint)
    assert facts == EngineFacts(
        models=(
            ServedModel(id="qwen3", tokenizer_source="/models/Qwen3-8B"),
            ServedModel(id="french", tokenizer_source="/models/Qwen3-8B"),
        ),
        capacity=BlockCapacity(blocks=2048, block_tokens=64),
        running=3,
        waiting=2,
        kv_usage=0.1562,
        prompt_tokens_total=90000,
        version="0.5.23",
        ranks=1,
        reports_cached=False,
        advice=(REPORT,),
    )
    assert facts.models[1].card["parent"] == "qwen3"


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_no_probe_computes_a_token(name: str) -> None:
    """Both paths of its health check do."""
    asked: list[str] = []
    async with server({**fixture(name), "/health": ""}, asked=asked) as endpoint:
        assert await SgLang().probe(endpoint) is not None
    assert not {"/health", "/health_generate"} & set(asked)


async def test_an_old_one_is_ready_when_its_scheduler_answers() -> None:
    """It has no /ready, and its state under one of two names."""
    replies = fixture(OLD)
    replies["/get_server_info"] = replies.pop("/server_info")
    async with server(replies) as endpoint:
        facts = await SgLang().probe(endpoint)
    assert facts is not None
    assert (facts.running, facts.waiting, facts.version) == (1, 0, "0.5.9")


@pytest.mark.parametrize("missing", ["/server_info", "/v1/models"])
async def test_one_that_does_not_answer_for_itself_is_not_ready(missing: str) -> None:
    """A port that accepts is not yet an engine that serves."""
    async with server({**fixture(OLD), missing: 503}) as endpoint:
        assert await SgLang().probe(endpoint) is None


async def test_one_that_pauses_or_ends_is_not_ready() -> None:
    """By its own word, whatever else it still answers."""
    async with server({**fixture(NEW), "/ready": 503}) as endpoint:
        assert await SgLang().probe(endpoint) is None


@pytest.mark.parametrize(
    ("members", "capacity"),
    [
        ({"page_size": 1}, BlockCapacity(blocks=8192, block_tokens=16)),
        ({"page_size": 8}, BlockCapacity(blocks=16385, block_tokens=8)),
        ({"page_size": 32}, BlockCapacity(blocks=4096, block_tokens=32)),
        ({"disable_radix_cache": True}, NoPrefixCache()),
        ({"max_total_num_tokens": None}, None),
        ({"page_size": None}, None),
        ({"max_total_num_tokens": 5}, None),
    ],
)
async def test_its_cache_is_counted_in_pages(
    members: dict[str, Any], capacity: Capacity | None
) -> None:
    """Smaller ones are taken together, since a block for each token would be dear."""
    async with server(changed(NEW, **members)) as endpoint:
        facts = await SgLang().probe(endpoint)
    assert facts is not None
    assert facts.capacity == capacity


async def test_without_loads_the_load_is_unknown() -> None:
    """Not zero."""
    async with server({**fixture(NEW), "/v1/loads": 404}) as endpoint:
        facts = await SgLang().probe(endpoint)
    assert facts is not None
    assert (facts.running, facts.waiting) == (None, None)


async def test_the_ids_of_a_chat_are_asked_for() -> None:
    """An old version takes no chats there, and so tells none."""
    async with server(fixture(NEW)) as endpoint:
        assert await SgLang().chat_tokens(endpoint, "qwen3", []) == [151644, 872, 198]
    async with server({"/tokenize": 400}) as endpoint:
        assert await SgLang().chat_tokens(endpoint, "qwen3", []) is None


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ('{"prompt_tokens":70,"completion_tokens":2,"prompt_tokens_details":null}', None),
        ('{"prompt_tokens":70,"prompt_tokens_details":{"cached_tokens":64}}', 64),
        ('{"prompt_tokens":70,"prompt_tokens_details":{"cached_tokens":0}}', 0),
        (
            '{"prompt_tokens":70,"prompt_tokens_details":{"cached_tokens":0,"image_tokens":9}}',
            None,
        ),
        (
            '{"prompt_tokens":70,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":9}}',
            64,
        ),
    ],
    ids=["no report", "a hit", "a miss", "an image, perhaps no report", "a hit with audio"],
)
def test_a_count_that_may_be_none_is_unknown(usage: str, cached: int | None) -> None:
    """Details come without --enable-cache-report where there are images, and then say 0."""
    report = SgLang().report(msgspec.json.decode(usage, type=Usage), None)
    assert (report.prompt_tokens, report.cached_tokens) == (70, cached)


async def test_its_events_are_where_it_says() -> None:
    """At the host that it is reached at, as it binds a wildcard."""
    async with server(fixture(NEW)) as endpoint:
        assert await SgLang().event_source(endpoint) == Source(
            endpoint="tcp://127.0.0.1:5557", replay_endpoint="tcp://127.0.0.1:5657", topic="kv"
        )


KV = fixture(NEW)["/server_info"]["kv_events"]


@pytest.mark.parametrize(
    ("kv_events", "reason"),
    [
        (None, "--kv-events-config"),
        ({**KV, "dp_size": 2}, "data_parallel"),
        ({**KV, "block_size": 1}, "--page-size"),
        ({**KV, "endpoint_host": "collector"}, "binds no TCP port"),
        ({**KV, "endpoint_port_base": 0}, "binds no TCP port"),
        ({**KV, "endpoint_port_base": 65536}, "binds no TCP port"),
        ({**KV, "endpoint_port_base": "x"}, "binds no TCP port"),
    ],
)
async def test_events_that_cannot_be_followed_have_a_reason(kv_events: Any, reason: str) -> None:
    """Nothing is guessed."""
    async with server(changed(NEW, kv_events=kv_events)) as endpoint:
        with pytest.raises(NoEvents, match=reason):
            await SgLang().event_source(endpoint)


async def test_an_old_one_tells_of_no_events() -> None:
    """Then where they are is to be set."""
    async with server(fixture(OLD)) as endpoint:
        with pytest.raises(NoEvents, match="set where they are"):
            await SgLang().event_source(endpoint)
