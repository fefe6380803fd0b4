"""TensorRT-LLM's adapter on replies made after its source; the fixture names the commit."""

import msgspec
import pytest

from prefold.backends.detect import detect
from prefold.backends.engine import EngineFacts, PromptReport, ServedModel, Usage
from prefold.backends.kv_events.discovery import NoEvents
from prefold.backends.tensorrt_llm import CAPACITY, TensorRtLlm
from tests.support.replies import fixture, server

REPLIES = fixture("tensorrt_llm")


async def test_it_is_recognised_and_described() -> None:
    """Of load and capacity it tells nothing that others would not miss."""
    async with server(REPLIES) as endpoint:
        engine = await detect(endpoint)
        assert isinstance(engine, TensorRtLlm)
        assert await engine.probe(endpoint) == EngineFacts(
            models=(ServedModel(id="Qwen3-8B"),), version="1.2.1", advice=(CAPACITY,)
        )


async def test_what_empties_its_queues_is_never_asked() -> None:
    """Neither by a probe, nor for tokens, nor for events; and no token is computed."""
    asked: list[str] = []
    answers = {**REPLIES, "/metrics": [], "/kv_cache_events": [], "/health_generate": ""}
    async with server(answers, asked=asked) as endpoint:
        engine = TensorRtLlm()
        await engine.probe(endpoint)
        assert await engine.chat_tokens(endpoint, "Qwen3-8B", []) is None
        with pytest.raises(NoEvents, match="other readers"):
            await engine.event_source(endpoint)
    assert asked == ["/health", "/v1/models", "/version"]


async def test_one_that_is_not_healthy_is_not_ready() -> None:
    """Whatever else it still answers."""
    async with server({**REPLIES, "/health": 503}) as endpoint:
        assert await TensorRtLlm().probe(endpoint) is None


async def test_a_version_that_is_not_told_is_unknown() -> None:
    """It is for people only."""
    async with server({**REPLIES, "/version": 404}) as endpoint:
        facts = await TensorRtLlm().probe(endpoint)
    assert facts is not None
    assert facts.version is None


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        (
            '{"prompt_tokens":70,"total_tokens":72,"completion_tokens":2,'
            '"prompt_tokens_details":{"cached_tokens":64}}',
            64,
        ),
        ('{"prompt_tokens":70,"total_tokens":72,"completion_tokens":2}', None),
    ],
    ids=["as it is now", "before it told cached tokens"],
)
def test_its_usage_is_read_as_it_comes(usage: str, cached: int | None) -> None:
    """UsageInfo in openai_protocol.py."""
    report = TensorRtLlm().report(msgspec.json.decode(usage, type=Usage), None)
    assert report == PromptReport(prompt_tokens=70, cached_tokens=cached, completion_tokens=2)
