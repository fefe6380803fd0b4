"""Compressor processes: what one does, and what the pool does when one does not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from prefold.backends.parent_death import command
from prefold.compression.catalog import CompressorChoice
from prefold.compression.compressor import (
    Compressed,
    CompressorGone,
    CompressorUnavailable,
    NullCompressor,
    Passage,
)
from prefold.compression.protect import Protection
from prefold.compression.worker.child import CannotOpen, Child, ChildGone, started
from prefold.compression.worker.faults import MAX_KINDS, Faults
from prefold.compression.worker.messages import (
    Batch,
    Done,
    Open,
    Ready,
    framed,
    order_of,
    report_of,
)
from prefold.compression.worker.pool import Job, PoolRules, Unavailable, WorkerPool
from prefold.compression.worker.process import Worker
from prefold.compression.worker.speed import Speed
from tests.support.proxy import until

ORDER = Open(CompressorChoice(name="null"), Protection())


class Faulty(NullCompressor):
    """Raises for some texts, and breaks the protocol for others."""

    def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
        if any(passage.text == "raise" for passage in passages):
            raise RuntimeError("a text that must not be shown")
        if any(passage.text == "swap" for passage in passages):
            return [Compressed(kept=((2, 4), (0, 2))) for _ in passages]
        return super().compress(passages)


def test_a_text_that_breaks_the_compressor_is_no_other_ones_harm() -> None:
    """Of a batch, those fail that fail alone."""
    done = Worker(Faulty(), Protection()).done(
        Batch([("a b", 0.5), ("raise", 0.5), ("swap", 0.5), ("", 0.5)])
    )
    assert done == Done([[0, 3], None, None, []], {1: "RuntimeError", 2: "CompressorFault"})


def test_one_that_fails_on_every_text_is_never_ready() -> None:
    """It says with what, by the class of the exception: its message may quote a text."""

    class Broken(NullCompressor):
        def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
            raise RuntimeError(passages[0].text)

    with pytest.raises(CompressorUnavailable) as told:
        Worker(Broken(), Protection()).ready()
    assert str(told.value) == "it fails on any text, with RuntimeError"


def test_what_is_of_no_more_use_is_not_tried_text_by_text() -> None:
    """One question to a server that is not there is enough."""
    asked = []

    class Gone(NullCompressor):
        def compress(self, passages: Sequence[Passage]) -> list[Compressed]:
            asked.append(len(passages))
            raise CompressorGone("the server is down", "unreachable")

    with pytest.raises(CompressorGone):
        Worker(Gone(), Protection()).done(Batch([("a", 0.5), ("b", 0.5)]))
    assert asked == [2]


def test_its_digest_names_what_decides_the_output() -> None:
    """The protection is part of that."""
    one = Worker(NullCompressor(), Protection()).ready()
    other = Worker(NullCompressor(), Protection(keep=(("<<", ">>"),))).ready()
    assert one.digest != other.digest
    assert one.chars_per_s > 0


def test_frames_come_back_as_they_were() -> None:
    """Orders and reports; what is neither is a ValueError."""
    assert order_of(framed(ORDER)[4:]) == ORDER
    assert report_of(framed(Ready("n", "d", 1.5))[4:]) == Ready("n", "d", 1.5)
    with pytest.raises(ValueError, match=r"tag|missing|Invalid|Expected"):
        report_of(framed(ORDER)[4:])
    with pytest.raises(ValueError, match=r"malformed|truncated|Invalid|trailing"):
        order_of(b"\xc1")


async def test_a_child_serves_and_is_gone_at_the_end() -> None:
    """One batch after the other; killed in between, it says so."""
    async with started(ORDER, command) as child:
        assert child.ready.name == "null"
        assert await child.compress([("a b c", 0.5), ("", 0.5)]) == Done([[0, 5], []])
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(ChildGone):
            await child.compress([("a", 0.5)])
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_what_cannot_be_opened_says_why() -> None:
    """An unknown name, a missing model."""
    for choice, why in (
        (CompressorChoice(name="none"), "no compressor is called"),
        (CompressorChoice(name="llmlingua2"), "needs a model"),
    ):
        with pytest.raises(CannotOpen, match=why):
            async with started(Open(choice, Protection()), command):
                raise AssertionError("it opened")


async def test_it_gets_no_secrets() -> None:
    """Only what models and devices are found by."""
    environment = {**os.environ, "PREFOLD_SERVER__ADMIN_KEY": "s3cret", "MY_API_KEY": "s3cret"}
    async with started(ORDER, command, environment) as child:
        with open(f"/proc/{child.pid}/environ", "rb") as file:  # noqa: ASYNC230 - not a disk
            assert b"s3cret" not in file.read()


PARENT = """
import asyncio
from prefold.backends.parent_death import command
from prefold.compression.catalog import CompressorChoice
from prefold.compression.protect import Protection
from prefold.compression.worker.child import started
from prefold.compression.worker.messages import Open

async def main():
    async with started(Open(CompressorChoice(name="null"), Protection()), command) as child:
        print(child.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_it_does_not_outlive_its_parent() -> None:
    """Not even one that was killed."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()
    for _ in range(400):
        if not _runs(pid):
            return
        time.sleep(0.01)
    raise AssertionError("it is still there")


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


class Scripted:
    """Stands for a child: batches wait until the test answers them."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ready = Ready("scripted", "digest", 1000.0)
        self.batches: list[list[str]] = []
        self.answer: asyncio.Future[Done] | None = None

    async def compress(self, jobs: Sequence[tuple[str, float]]) -> Done:
        self.batches.append([text for text, _ in jobs])
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


class Stage:
    """A pool of scripted children, and a clock."""

    def __init__(self, rules: PoolRules) -> None:
        self.children: list[Scripted] = []
        self.now = 0.0
        self.pool = WorkerPool(self._start, rules, lambda: self.now)

    @asynccontextmanager
    async def _start(self) -> AsyncIterator[Child]:
        child = Scripted(len(self.children))
        self.children.append(child)
        yield child  # type: ignore[misc]

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def done(self, child: int = 0, result: list[int] | None = None) -> None:
        answer = self.children[child].answer
        assert answer is not None
        batch = self.children[child].batches[-1]
        failed = {n: "RuntimeError" for n in range(len(batch)) if result is None}
        answer.set_result(Done([result for _ in batch], failed))


@asynccontextmanager
async def pool_of(**rules: float) -> AsyncIterator[Stage]:
    stage = Stage(PoolRules(**rules))  # type: ignore[arg-type]
    async with stage.pool:
        await stage.settle()
        yield stage


async def test_what_waits_goes_as_one_batch() -> None:
    """Of however many requests, less what was given up, and no more than fits."""
    async with pool_of(batch_chars=10) as stage:
        first = stage.pool.submit("first", 0.5)
        await stage.settle()
        jobs = [stage.pool.submit(text, 0.5) for text in ("aaaa", "bbbb", "cccc", "dddd")]
        jobs[1].spans.cancel()
        assert stage.pool.load == (3, 5 + 16)
        stage.done(result=[0, 1])
        await stage.settle()
        assert first.spans.result() == [0, 1]
        assert stage.children[0].batches == [["first"], ["aaaa", "cccc"]]
        stage.done()
        await stage.settle()
        with pytest.raises(Unavailable):
            jobs[0].spans.result()
        assert stage.children[0].batches[2:] == [["dddd"]]


async def test_a_text_that_fails_tells_how_and_not_what(caplog: pytest.LogCaptureFixture) -> None:
    """The kind is counted, given to who waits, and logged once a minute, with how many there
    were."""
    async with pool_of() as stage:
        for _ in range(3):
            jobs = [stage.pool.submit(f"secret {n}", 0.5) for n in range(2)]
            await stage.settle()
            stage.done()
            await stage.settle()
            for job in jobs:
                with pytest.raises(Unavailable) as told:
                    job.spans.result()
                assert told.value.kind == "RuntimeError"
            stage.now += 40.0
        assert stage.pool.faults.counts == {("text", "RuntimeError"): 6}
        assert stage.pool.failures == 0
        assert stage.pool.seconds_for(500) == pytest.approx(0.5)  # no speed was learned from it
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "the compressor failed on a text: RuntimeError (1 since told last)",
        "the compressor failed on a text: RuntimeError (4 since told last)",
    ]


async def test_how_a_process_failed_is_counted_by_kind() -> None:
    """Killed, or not to be opened."""
    rules = PoolRules()
    async with WorkerPool(lambda: started(ORDER, command), rules, time.perf_counter) as pool:
        await until(lambda: pool.up > 0, tries=3000)
        [pid] = pool.pids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable):
            await pool.submit("a b", 0.5).spans
        await until(lambda: pool.failures > 0)
        assert pool.faults.counts == {("process", "ended"): 1}
    order = Open(CompressorChoice(name="none"), Protection())
    async with WorkerPool(lambda: started(order, command), rules, time.perf_counter) as pool:
        await until(lambda: pool.failures > 0, tries=3000)
        assert pool.faults.counts == {("process", "cannot_open"): 1}


def test_kinds_are_few_and_words() -> None:
    """Some come from another machine, and each is a label of a metric."""
    faults = Faults()
    for kind in ("a b", "x" * 65, "", "ok"):
        faults.text(kind, 0.0)
    for n in range(100):
        faults.process(f"k{n}")
    assert faults.counts["text", "other"] == 3
    assert faults.counts["text", "ok"] == 1
    assert len(faults.counts) <= MAX_KINDS + 2
    assert faults.counts["process", "other"] > 60


async def test_a_batch_that_takes_too_long_is_given_up() -> None:
    """Its jobs fail, and so do those that wait where no other process is left."""
    async with pool_of(hang_s=0.01) as stage:
        jobs = [stage.pool.submit(text, 0.5) for text in ("a", "b")]
        await stage.settle()
        late = stage.pool.submit("c", 0.5)
        for job in (*jobs, late):
            with pytest.raises(Unavailable):
                await job.spans
        assert stage.pool.failures == 1
        assert stage.pool.faults.counts == {("process", "hung"): 1}
        assert stage.pool.up == 0
        with pytest.raises(Unavailable):
            stage.pool.submit("d", 0.5)
        assert stage.pool.seconds_for(1) == float("inf")


async def test_a_text_that_is_none_ends_nothing() -> None:
    """It cannot be sent; the next one can, by another process."""
    rules = PoolRules()
    async with WorkerPool(lambda: started(ORDER, command), rules, time.perf_counter) as pool:
        await until(lambda: pool.starts == 1 and pool.up, tries=3000)
        with pytest.raises(Unavailable):
            await pool.submit("\ud800", 0.5).spans
        await until(lambda: pool.starts == 2 and pool.up, tries=3000)
        assert await pool.submit("a b", 0.5).spans == [0, 3]


async def test_the_queue_is_bounded() -> None:
    """In characters: more is not taken, and not waited for."""
    async with pool_of(queue_chars=10) as stage:
        stage.pool.submit("under way", 0.5)
        await stage.settle()
        stage.pool.submit("0123456789", 0.5)
        with pytest.raises(Unavailable):
            stage.pool.submit("x", 0.5)


async def test_the_wait_is_predicted_from_queue_and_speed() -> None:
    """A batch that is late is expected to take as long again as it has."""
    async with pool_of() as stage:
        assert stage.pool.seconds_for(500) == pytest.approx(0.5)
        stage.pool.submit("x" * 2000, 0.5)
        await stage.settle()
        stage.pool.submit("y" * 1000, 0.5)
        stage.now = 0.5
        assert stage.pool.seconds_for(0) == pytest.approx(1.5 + 1.0)
        stage.now = 10.0
        assert stage.pool.seconds_for(0) == pytest.approx(10.0 + 1.0)
        stage.done(result=[0, 1])
        await stage.settle()
        assert stage.pool.speed.chars_per_s == pytest.approx(200, rel=0.01)


async def test_the_seconds_of_a_batch_are_those_of_its_texts() -> None:
    """By characters, also where it failed, and where nobody waits any more."""
    async with pool_of() as stage:
        told: dict[str, float] = {}
        for batch, result in ((("aaa", "a"), [0, 1]), (("bb",), None)):
            jobs = [stage.pool.submit(text, 0.5) for text in batch]
            for job in jobs:
                job.spent = partial(told.__setitem__, job.text)
            await stage.settle()
            jobs[0].spans.cancel()
            stage.now += 2.0
            stage.done(result=result)
            await stage.settle()
        assert told == {"aaa": 1.5, "a": 0.5, "bb": 2.0}
        assert stage.pool.busy_s == 4.0


async def test_several_processes_share_the_queue() -> None:
    """Each takes what is there when it is free."""
    async with pool_of(workers=2, batch_chars=1) as stage:
        jobs: list[Job] = [stage.pool.submit(text, 0.5) for text in ("a", "b", "c")]
        await stage.settle()
        assert [child.batches for child in stage.children] == [[["a"]], [["b"]]]
        stage.done(1, [0, 1])
        await stage.settle()
        assert stage.children[1].batches == [["b"], ["c"]]
        assert jobs[1].spans.done()
        assert not jobs[0].spans.done()


def test_what_was_seen_last_counts_most() -> None:
    """Of the speed."""
    speed = Speed()
    assert speed.chars_per_s is None
    for _ in range(50):
        speed.observe(100, 1.0)
    for _ in range(50):
        speed.observe(100, 10.0)
    assert speed.chars_per_s == pytest.approx(10, rel=0.1)
