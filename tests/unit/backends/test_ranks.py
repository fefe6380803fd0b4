"""Data-parallel ranks behind one URL: what is told of each, on replies made after the sources."""

import pytest

from prefold.backends.detect import detect
from prefold.backends.engine import BlockCapacity, Engine
from prefold.backends.errors import BackendError
from prefold.backends.kv_events.discovery import NoEvents
from prefold.backends.sglang import SgLang
from prefold.backends.vllm import Vllm
from tests.support.replies import fixture, server

VLLM, NODE, SGLANG = (
    "vllm_0.33.0_two_ranks",
    "vllm_0.33.0_second_node",
    "sglang_0.5.23_two_ranks",
)
CASES = [
    (Vllm(), VLLM, 0, (2, 4), (5557, 5657)),
    (Vllm(), VLLM, 1, (1, 0), (5558, 5658)),
    (Vllm(), NODE, 0, (2, 4), (5559, 5659)),
    (Vllm(), NODE, 1, (1, 0), (5560, 5660)),
    (SgLang(), SGLANG, 0, (3, 2), (5557, 5657)),
    (SgLang(), SGLANG, 1, (1, 0), (5558, 5658)),
]
ENGINES = [
    (Vllm(), VLLM, (3, 4), BlockCapacity(blocks=2048, block_tokens=16)),
    (SgLang(), SGLANG, (4, 2), BlockCapacity(blocks=2048, block_tokens=64)),
]


@pytest.mark.parametrize(("engine", "name", "rank", "load", "ports"), CASES)
async def test_a_rank_has_a_load_and_events_of_its_own(
    engine: Engine, name: str, rank: int, load: tuple[int, int], ports: tuple[int, int]
) -> None:
    """Counted from 0 within its server, also where that has a fleet's later ones."""
    async with server(fixture(name), rank=rank) as endpoint:
        facts = await engine.probe(endpoint)
        source = await engine.event_source(endpoint)
    assert facts is not None
    assert (facts.running, facts.waiting) == load
    assert facts.advice == ()
    assert (source.endpoint, source.replay_endpoint) == tuple(
        f"tcp://127.0.0.1:{port}" for port in ports
    )


@pytest.mark.parametrize(("engine", "name", "load", "capacity"), ENGINES)
async def test_a_server_of_several_caches_is_known_as_such(
    engine: Engine, name: str, load: tuple[int, int], capacity: BlockCapacity
) -> None:
    """A prompt is held by one cache only, so one's size counts, and no stream is followed."""
    for rank in (None, 0, 1):
        async with server(fixture(name), rank=rank) as endpoint:
            facts = await engine.probe(endpoint)
        assert facts is not None
        assert (facts.capacity, facts.ranks) == (capacity, 2)
    async with server(fixture(name)) as endpoint:
        facts = await engine.probe(endpoint)
        with pytest.raises(NoEvents, match="several data-parallel ranks"):
            await engine.event_source(endpoint)
    assert facts is not None
    assert (facts.running, facts.waiting) == load
    assert facts.advice == ("2 KV caches are behind its URL: set data_parallel = 2",)


@pytest.mark.parametrize(("engine", "name"), [(Vllm(), VLLM), (SgLang(), SGLANG)])
async def test_a_rank_that_is_not_there_is_not_ready(engine: Engine, name: str) -> None:
    """Its requests would be refused."""
    async with server(fixture(name), rank=2) as endpoint:
        with pytest.raises(BackendError, match="no data-parallel rank 2: the engine has 2"):
            await engine.probe(endpoint)


async def test_a_rank_without_events_is_told_so() -> None:
    """The server may publish for fewer ranks than it has."""
    replies = fixture(VLLM)
    del replies["/kv_event_sources"]["1"]
    async with server(replies, rank=1) as endpoint:
        with pytest.raises(NoEvents, match="rank 1"):
            await Vllm().event_source(endpoint)


@pytest.mark.parametrize("owner", ["llamacpp", "tensorrt_llm", "somebody"])
async def test_an_engine_that_takes_no_ranks_is_found_out(owner: str) -> None:
    """Two backends would share one cache, and neither know it."""
    models = {"/v1/models": {"data": [{"id": "m", "owned_by": owner}]}}
    async with server(models, rank=0) as endpoint:
        with pytest.raises(BackendError, match="no data-parallel rank 0"):
            await detect(endpoint)


async def test_what_is_not_told_of_a_rank_is_unknown() -> None:
    """Though it is told of another."""
    replies = fixture(VLLM)
    lines = replies["/metrics"].splitlines(keepends=True)
    waiting = 'num_requests_waiting{engine="1"'
    replies["/metrics"] = "".join(line for line in lines if waiting not in line)
    async with server(replies, rank=1) as endpoint:
        facts = await Vllm().probe(endpoint)
    assert facts is not None
    assert (facts.running, facts.waiting) == (1, None)


async def test_without_metrics_ranks_are_unknown() -> None:
    """And nothing is held against one that is asked for."""
    async with server({**fixture(VLLM), "/metrics": 404}, rank=7) as endpoint:
        facts = await Vllm().probe(endpoint)
    assert facts is not None
    assert (facts.ranks, facts.running, facts.capacity) == (None, None, None)
