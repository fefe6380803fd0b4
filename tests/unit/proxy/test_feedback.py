"""What answers teach a fleet: real indexes and exchanges, reports made up, time passed in."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import zmq.asyncio

from prefold.backends.backend import Backend, Mode
from prefold.backends.engine import BlockCapacity, Endpoint, EngineFacts
from prefold.backends.health import HealthRules
from prefold.backends.kv_events.subscriber import Source
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.index import RIGHT, Correction, Placement, PrefixIndex, PrefixMatch
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.exchange import Exchange
from prefold.proxy.feedback import Feedback
from prefold.proxy.fleet import DOUBT_S, Fleet
from prefold.proxy.kv_events import engine_seed
from prefold.proxy.protocol import CHUNKS
from tests.support.proxy import until
from tests.support.telling_engine import BLOCK, BLOCKS, telling_engine

FACTS = EngineFacts(models=(), capacity=BlockCapacity(blocks=1000, block_tokens=16))


def no_endpoint(backend: Backend) -> Endpoint:
    raise AssertionError("it serves no model: it is asked nothing")


class Believing:
    """A cache model that always expects so much, and learns nothing."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.size_tokens = self.capacity_tokens = tokens

    def match(self, prefix: Prefix) -> PrefixMatch:
        return PrefixMatch(self._tokens, 0.0)

    def begin(self, prefix: Prefix, now: float) -> Placement:
        return Placement(prefix, self._tokens, None)

    def finish(self, placement: Placement, now: float, *, computed: bool = True) -> None:
        pass

    def correct(
        self, placement: Placement, cached_tokens: int, now: float, *, generated_tokens: int = 0
    ) -> Correction:
        return RIGHT

    def clear(self) -> None:
        pass


class Scene:
    """One backend in a mode, and answers to prompts of 160 tokens."""

    def __init__(self, catalog: ModelCatalog) -> None:
        self.now = 0.0
        self.index = PrefixIndex()
        self.fleet = Fleet(
            index=self.index,
            catalog=catalog,
            endpoint=no_endpoint,
            default_capacity_tokens=1000,
            default_block_tokens=10,
            secret=b"s",
        )
        self.backend = Backend(
            name="b", url="http://b", headers={}, engine=None, rules=HealthRules()
        )
        self.feedback = Feedback(self.fleet, lambda: self.now)

    def answer(
        self,
        talk: int,
        reported: int | None,
        *,
        prompt_tokens: int = 160,
        encoded: int | None = 160,
    ) -> RequestRecord:
        prefix = Prefix.of_tokens(np.full(160, talk, dtype=np.uint32), 1)
        return self._learn(prefix, prompt_tokens, reported, encoded)

    def _learn(
        self, prefix: Prefix, prompt_tokens: int, reported: int | None, encoded: int | None
    ) -> RequestRecord:
        exchange = Exchange(self.backend, CHUNKS, lambda: self.now, index=self.index, prefix=prefix)
        record = RequestRecord(
            endpoint="",
            received=self.now,
            encoded_tokens=encoded,
            prompt_tokens=prompt_tokens,
            reported_tokens=reported,
        )
        self.feedback.learn(exchange, record)
        if exchange.placement is not None:  # it was answered: what was sent is computed
            self.index.finish("b", exchange.placement, self.now)
        exchange.close()
        self.now += 1.0
        return record

    def claim(self, tokens: list[int], reported: int) -> None:
        """An answer to a prompt as the engine's events know it."""
        prefix = Prefix.of_tokens(np.array(tokens, dtype=np.uint32), engine_seed(b"s", None, None))
        self._learn(prefix, len(tokens), reported, len(tokens))

    def believed(self, talk: int) -> int:
        prefix = Prefix.of_tokens(np.full(160, talk, dtype=np.uint32), 1)
        return self.index.match(prefix, "b").cached_tokens


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    catalog = ModelCatalog({}, {}, memo_bytes=0, inline_chars=0)
    made = Scene(catalog)
    await made.fleet.ready(made.backend, FACTS, True)
    yield made
    catalog.close()


async def test_the_index_is_corrected_and_the_record_says_so(scene: Scene) -> None:
    """By exact reports of the prompt that was counted the same."""
    for talk in (1, 2, 3):
        scene.answer(talk, 0)
    record = scene.answer(2, 0)
    assert record.lost_tokens == 160 + 160, "its own, and the older"
    assert (scene.believed(1), scene.believed(3)) == (0, 144)
    error = scene.backend.prediction.error
    assert error is not None
    assert error > 0.9


async def test_what_is_no_report_on_the_model_is_not_taken_for_one(scene: Scene) -> None:
    """Another count of tokens, and no report at all; a prompt without ids is not even judged."""
    for talk in (1, 2):
        scene.answer(talk, 0)
    scene.answer(2, 0, encoded=None)
    assert scene.backend.prediction.error is None
    scene.answer(2, 0, prompt_tokens=161)
    scene.answer(2, None)
    assert (scene.believed(1), scene.believed(2)) == (144, 144)


async def test_an_emptied_cache_is_told_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """One line, and a mark in the record of the request that showed it."""
    for talk in range(5):
        scene.answer(talk, 0)
    with caplog.at_level(logging.WARNING):
        emptied = [scene.answer(talk, 0).emptied for talk in (2, 3, 4)]
    assert emptied == [False, False, True]
    assert [scene.believed(talk) for talk in range(5)] == [0, 0, 144, 144, 144]
    [line] = caplog.messages
    assert line.startswith("backend b lost its cache")


async def test_bytes_are_judged_by_length_and_corrected_never(scene: Scene) -> None:
    """What is expected of them is brought to the engine's count of tokens."""
    scene.backend.mode = Mode.APPROXIMATE
    scene.answer(1, 0, encoded=None)
    record = scene.answer(1, 72, prompt_tokens=80, encoded=None)
    assert record.lost_tokens == 0
    assert scene.backend.prediction.error == 0.0


async def test_each_change_of_mode_is_one_line(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Down to the hash while the reports deny all, and up when what would be claimed is right."""
    scene.index.set_cache("b", Believing(160))
    with caplog.at_level(logging.INFO):
        for _ in range(200):
            scene.answer(1, 0)
        for _ in range(200):
            scene.answer(1, 144)
    assert scene.backend.prediction.trusted
    assert [line.split(":")[1].strip() for line in caplog.messages] == [
        "mode rendezvous",
        "mode feedback",
    ]


async def test_events_that_are_not_what_is_reported_are_not_believed(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For some minutes a guess takes over; then they are tried again."""
    prompt = [7] * 160
    async with telling_engine(tmp_path) as engine, scene.fleet.feeds:
        scene.backend.event_source = Source(
            endpoint=engine.pub.getsockopt_string(zmq.LAST_ENDPOINT),
            replay_endpoint=engine.replay_endpoint,
            topic="kv",
        )
        facts = EngineFacts(models=(), capacity=BlockCapacity(blocks=BLOCKS, block_tokens=BLOCK))
        await scene.fleet.ready(scene.backend, facts, True)
        await engine.compute(prompt)
        await until(lambda: scene.index.size_tokens("b") == 160 + BLOCK)
        assert scene.backend.mode is Mode.EVENTS
        while scene.backend.mode is Mode.EVENTS:
            scene.claim(prompt, reported=0)
            assert scene.now < 200
        assert scene.backend.mode_reason.endswith("they are not what the engine reports")
        assert scene.index.size_tokens("b") == 0
        scene.now += DOUBT_S
        scene.claim(prompt, reported=0)
        assert scene.backend.shown_mode is Mode.EVENTS
    assert [line.split(":")[1].strip() for line in caplog.messages if "mode" in line] == [
        "mode feedback"
    ]
