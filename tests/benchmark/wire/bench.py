"""The run: stub, load and proxies beside each other, and one phase after the other.

In each round of a case every peer does a phase before any peer does the next one, so what else the
machine does meets all of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.benchmark.wire.bodies import bodies, messages
from tests.benchmark.wire.job import Job, Outcome
from tests.benchmark.wire.peers import DIRECT, Peer, Running, running
from tests.benchmark.wire.phases import Phase, phases
from tests.benchmark.wire.plan import SHARED, Case, Plan
from tests.benchmark.wire.processes import (
    Child,
    Cores,
    ProcessError,
    child,
    cpu_us,
    module,
    rss_mb,
)
from tests.benchmark.wire.scene import Scene

ENGINES = 2
LEAST_BYTES = 0.8
"""Share of what was sent that must reach the engine: peers that write JSON anew make it shorter."""
STALL_PROBES, STALL_HEAD_START_MS = 20, 3.0


class WrongAnswers(Exception):
    """A peer's answers are not the ones that were asked for, so its figures count for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One phase of one peer in one round. CPU in microseconds for each request."""

    cpu_us: float | None
    """Of the proxy; None for `direct`."""
    stub_cpu_us: float
    load_cpu_us: float
    renderings: float
    """Calls to the engine's /render for each request."""
    first_ms: list[float]
    wall_s: float
    rss_mb: float | None


@dataclass(slots=True)
class Results:
    samples: dict[tuple[Case, str, Phase], list[Sample]] = field(
        default_factory=lambda: defaultdict(list)
    )
    errors: dict[tuple[Case, str], str] = field(default_factory=dict)
    """By case and peer: why it has no figures there."""
    after_head_ms: dict[str, float | None] = field(default_factory=dict)
    """By peer, median TTFT where the first event follows the head by 3 ms. Far above that, an
    accepted connection has no TCP_NODELAY: the event waits until the client acknowledges the
    head."""


@dataclass(slots=True)
class Bench:
    stub: Child
    load: Child
    engines: Sequence[str]

    def tokens(self, case: Case) -> tuple[int, int]:
        """Of a prompt of this case: all, and those that it has in common with another one."""
        made = bodies(size=case.body_bytes, shared=case.prompt == SHARED, stream=False, seed="size")
        first, second = (self._ids(messages(body)) for body in islice(made, 2))
        pairs = zip(first, second, strict=False)
        return len(first), sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def measure(self, target: Running, scene: Scene, job: Job) -> Sample:
        """Raises WrongAnswers, ProcessError."""
        self._ask("/bench/scene", scene.to_json())
        self.load.tell(job.to_json())
        self._expect("ready")
        pid = None if target.child is None else target.child.pid
        before = 0.0 if pid is None else cpu_us(pid)
        self.load.tell("go")
        said = self.load.hear()
        after = 0.0 if pid is None else cpu_us(pid)
        if said != "done":
            raise WrongAnswers(said["failed"])
        outcome = Outcome(**self.load.hear())
        told = json.loads(self._ask("/bench/counts"))
        _check(job, outcome, told)
        return Sample(
            cpu_us=None if pid is None else (after - before) / job.requests,
            stub_cpu_us=told["cpu_us"] / job.requests,
            load_cpu_us=outcome.cpu_us / job.requests,
            renderings=told["counts"].get("renderings", 0) / job.requests,
            first_ms=outcome.first_ms,
            wall_s=outcome.wall_s,
            rss_mb=None if pid is None else rss_mb(pid),
        )

    def _expect(self, word: str) -> None:
        if (said := self.load.hear()) != word:
            raise ProcessError(f"the load said {said}, not {word}")

    def _ids(self, chat: Any) -> list[int]:
        prompt = json.loads(self._ask("/apply-template", json.dumps({"messages": chat}).encode()))
        text = json.dumps({"content": prompt["prompt"]}).encode()
        ids: list[int] = json.loads(self._ask("/tokenize", text))["tokens"]
        return ids

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        with urlopen(Request(self.engines[0] + path, body), timeout=30.0) as answer:
            content: bytes = answer.read()
            return content


@contextmanager
def bench(model: Path, cores: Cores, *, realtime: bool) -> Iterator[Bench]:
    stub = module("tests.benchmark.wire.stub", str(model), str(ENGINES))
    load = module("tests.benchmark.wire.load")
    with (
        child("stub", stub, cores.stub, talks=True, realtime=realtime) as stub_process,
        child("load", load, cores.load, talks=True, realtime=realtime) as load_process,
    ):
        yield Bench(stub_process, load_process, stub_process.hear())


@contextmanager
def targets(
    bench: Bench, peers: Sequence[tuple[Peer, Path]], cores: Cores, *, realtime: bool
) -> Iterator[dict[str, Running]]:
    """All proxies at once, and the stub itself as `direct`. Raises ProcessError."""
    with ExitStack() as stack:
        started = {
            peer.name: stack.enter_context(
                running(peer, program, bench.engines, cores, realtime=realtime)
            )
            for peer, program in peers
        }
        yield {**started, DIRECT: Running(name=DIRECT, url=bench.engines[0])}


def run(
    bench: Bench, targets: dict[str, Running], plan: Plan, tell: Callable[[str], None]
) -> Results:
    """`tell` is called with a line of progress. Raises ProcessError if stub or load end."""
    results = Results()
    for name, target in targets.items():
        results.after_head_ms[name] = _after_head_ms(bench, target)
    for case in plan.cases:
        tokens = bench.tokens(case)
        jobs = phases(plan, case, tokens)
        warm = replace(jobs[Phase.WHOLE][1], requests=plan.warm_up, seed="warm")
        for name, target in targets.items():
            _attempt(results, bench, (case, name, None), target, jobs[Phase.WHOLE][0], warm)
        for number in range(plan.rounds):
            for phase, (scene, job) in jobs.items():
                tell(f"{case.name} ({tokens[0]} tokens), round {number + 1}, {phase}")
                seeded = replace(job, seed=f"{phase} {number}")
                for name, target in targets.items():
                    _attempt(results, bench, (case, name, phase), target, scene, seeded)
    return results


def _attempt(
    results: Results,
    bench: Bench,
    key: tuple[Case, str, Phase | None],
    target: Running,
    scene: Scene,
    job: Job,
) -> None:
    """A peer that fails in a case is left alone for the rest of it; a warm-up has no phase."""
    case, name, phase = key
    if (case, name) in results.errors:
        return
    try:
        sample = bench.measure(target, scene, replace(job, url=target.url, needs=target.needs))
    except WrongAnswers as error:
        results.errors[case, name] = f"{phase or 'warm-up'}: {error}"
        return
    if phase is not None:
        results.samples[case, name, phase].append(sample)


def _check(job: Job, outcome: Outcome, told: dict[str, Any]) -> None:
    """Each request must have reached the engine once and whole."""
    counts = told["counts"]
    if outcome.wrong:
        raise WrongAnswers(outcome.wrong)
    if len(outcome.first_ms) != job.requests or counts.get("chats") != job.requests:
        raise WrongAnswers(f"{job.requests} requests, {counts.get('chats')} at the engine")
    if counts["chat bytes"] < LEAST_BYTES * job.requests * job.body_bytes:
        raise WrongAnswers(f"the engine saw {counts['chat bytes']} bytes")
    if counts.get("without TCP_NODELAY"):
        raise WrongAnswers("the stub's own sockets have no TCP_NODELAY")


def _after_head_ms(bench: Bench, target: Running) -> float | None:
    """See `Results.after_head_ms`; None where the answers are not right."""
    scene = Scene(chunks=2, ttft_ms=STALL_HEAD_START_MS, pace_ms=1.0)
    job = Job(
        url=target.url,
        body_bytes=1024,
        shared=False,
        chunks=2,
        requests=STALL_PROBES,
        seed="stall",
        connections=1,
        needs=target.needs,
    )
    try:
        found = sorted(bench.measure(target, scene, job).first_ms)
    except WrongAnswers:
        return None
    return found[len(found) // 2]
