"""The queue before busy backends: in order, bounded, and never asleep beside a free place.

The event loop's clock stands still unless a test moves it: nothing here depends on real time.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from prefold.backends.admission import Admission
from prefold.backends.backend import Backend, Lease
from prefold.backends.engine import EngineFacts, ServedModel
from prefold.backends.errors import QueueFull, QueueTimeout
from prefold.backends.health import HealthRules, Outcome
from prefold.backends.pool import BackendPool

QUEUE_S = 10.0


class Loop(asyncio.SelectorEventLoop):
    """Its time is what it is set to."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def settle(self, turns: int = 100) -> None:
        """Run whatever can run now."""
        for _ in range(turns):
            self.call_soon(self.stop)
            self.run_forever()


def backend(name: str, models: Collection[str], room: int) -> Backend:
    made = Backend(
        name=name,
        url=f"http://{name}",
        headers={},
        engine=None,
        rules=HealthRules(),
        max_in_flight=room,
    )
    made.facts = EngineFacts(models=tuple(ServedModel(id=model) for model in models))
    made.health.probed(0.0)
    return made


@dataclass(eq=False)
class Request:
    """Takes the first candidate it is given, as the pipeline does: with no await in between."""

    model: str | None
    excluded: frozenset[str] = frozenset()
    lease: Lease | None = None
    error: str = ""
    task: asyncio.Task[None] | None = None

    async def run(self, admission: Admission) -> None:
        try:
            found = await admission.candidates(self.model, self.excluded)
        except (QueueFull, QueueTimeout) as error:
            self.error = type(error).__name__
            return
        if found:
            self.lease = Lease(found[0], 1, 0.0)
        else:
            self.error = "nobody serves it"

    @property
    def state(self) -> str:
        if self.lease is not None:
            return self.lease.backend.name
        return self.error or "waits"


@dataclass
class Scene:
    """A pool and its queue on a loop of their own."""

    backends: list[Backend]
    queue: int = 100
    loop: Loop = field(default_factory=Loop)

    def __post_init__(self) -> None:
        self.pool = BackendPool(self.backends, 1000.0)
        self.admission = Admission(
            self.pool, queue=self.queue, queue_s=QUEUE_S, clock=self.loop.time
        )

    def request(self, model: str | None, *excluded: str) -> Request:
        request = Request(model, frozenset(excluded))
        request.task = self.loop.create_task(request.run(self.admission))
        return request

    def requests(self, *models: str | None) -> list[Request]:
        made = [self.request(model) for model in models]
        self.loop.settle()
        return made

    def release(self, request: Request) -> None:
        assert request.lease is not None
        request.lease.release(Outcome.SUCCESS, self.loop.now)

    def cancel(self, request: Request) -> None:
        assert request.task is not None
        request.task.cancel()

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.settle()
        self.loop.close()


@pytest.fixture
def scenes() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(*backends: Backend, queue: int = 100) -> Scene:
        made.append(Scene([*backends], queue=queue))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


@pytest.fixture
def one_place(scenes: Callable[..., Scene]) -> Scene:
    return scenes(backend("a", "mn", 1))


def states(requests: list[Request]) -> list[str]:
    return [request.state for request in requests]


def test_with_room_nobody_waits(one_place: Scene) -> None:
    """Not even for a turn of the loop."""
    request = one_place.request("m")
    one_place.loop.settle(1)

    assert request.state == "a"
    assert one_place.admission.waiting == 0


def test_a_free_place_goes_to_the_longest_wait(one_place: Scene) -> None:
    """One place, one request, in order of arrival, whatever the models."""
    requests = one_place.requests("m", "m", "n", "m", None)
    assert states(requests) == ["a", "waits", "waits", "waits", "waits"]
    assert one_place.admission.waiting == 4
    for done in range(4):
        one_place.release(requests[done])
        one_place.loop.settle()
        assert requests[done + 1].state == "a"
        assert states(requests[done + 2 :]) == ["waits"] * (3 - done)

    assert one_place.admission.waiting == 0


def test_whoever_comes_does_not_overtake(one_place: Scene) -> None:
    """The place is free, and whoever comes looks before its next owner does."""
    first, second = one_place.requests("m", "m")
    newcomer = one_place.request("n")
    one_place.release(first)
    one_place.loop.settle()

    assert (second.state, newcomer.state) == ("a", "waits")


def test_a_place_passes_on_when_its_next_owner_leaves(one_place: Scene) -> None:
    """Woken and cancelled at once: the wake-up is not lost with it."""
    first, second, third = one_place.requests("m", "m", "n")
    one_place.release(first)
    one_place.cancel(second)
    one_place.loop.settle()

    assert third.state == "a"
    assert one_place.admission.waiting == 0


def test_nobody_waits_longer_than_allowed(one_place: Scene) -> None:
    """And a place that comes at that very moment goes to the next."""
    first, second = one_place.requests("m", "m")
    one_place.loop.now = QUEUE_S - 1
    [third] = one_place.requests("m")
    one_place.loop.now = QUEUE_S
    one_place.release(first)
    one_place.loop.settle()

    assert states([second, third]) in (["QueueTimeout", "a"], ["a", "waits"])


def test_a_wait_that_is_over_is_an_error_and_leaves_the_queue(one_place: Scene) -> None:
    """At its time, with the place still taken."""
    first, second = one_place.requests("m", "m")
    one_place.loop.now = QUEUE_S
    one_place.loop.settle()

    assert (first.state, second.state) == ("a", "QueueTimeout")
    assert one_place.admission.waiting == 0


@pytest.mark.parametrize("queue", [0, 2])
def test_only_so_many_wait(scenes: Callable[..., Scene], queue: int) -> None:
    """The next one is refused at once."""
    scene = scenes(backend("a", "m", 1), queue=queue)
    requests = scene.requests(*["m"] * (queue + 2))

    assert states(requests) == ["a", *["waits"] * queue, "QueueFull"]


def test_a_model_that_has_room_does_not_wait_for_one_that_has_none(
    scenes: Callable[..., Scene],
) -> None:
    """Nor does one that is bound to a backend hold up the others."""
    scene = scenes(backend("a", "m", 1), backend("b", "mn", 1))
    first, second, third = scene.requests("m", "m", "n")
    assert states([first, second, third]) == ["a", "b", "waits"]
    bound = scene.request("m", "b")
    scene.loop.settle()
    scene.release(second)
    scene.loop.settle()

    assert (third.state, bound.state) == ("b", "waits")


def test_what_nobody_serves_does_not_wait(scenes: Callable[..., Scene]) -> None:
    """Neither from the start, nor when the last backend goes away meanwhile."""
    scene = scenes(backend("a", "m", 1))
    first, second, unknown = scene.requests("m", "m", "x")
    assert unknown.state == "nobody serves it"
    assert second.state == "waits"
    scene.backends[0].health.down()
    scene.release(first)
    scene.loop.settle()

    assert second.state == "nobody serves it"


def test_two_places_that_become_free_at_once_go_to_those_who_came_first(
    scenes: Callable[..., Scene],
) -> None:
    """The third in turn, whose line is woken beside the first one's, leaves the second place."""
    scene = scenes(backend("a", "mn", 2))
    first, second = scene.requests("m", "m")
    third, fourth, other = scene.requests("m", "m", "n")
    scene.backends[0].on_change = lambda: None
    scene.release(first)
    scene.release(second)
    scene.admission._wake()
    scene.loop.settle()

    assert [request.state for request in (third, fourth, other)] == ["a", "a", "waits"]


def test_a_backend_that_joins_serves_those_who_wait(scenes: Callable[..., Scene]) -> None:
    """With the first probe that it passes."""
    scene = scenes(backend("a", "m", 1))
    requests = scene.requests("m", "m", "m", "m")
    scene.pool.add(backend("b", "m", 2))
    scene.pool["b"].on_change()
    scene.loop.settle()
    assert states(requests) == ["a", "b", "b", "waits"]
    scene.pool.remove("a")
    scene.release(requests[0])
    scene.loop.settle()

    assert states(requests) == ["a", "b", "b", "waits"], "a removed backend has no places"


def test_a_place_that_comes_with_time_is_found_when_anybody_comes(
    scenes: Callable[..., Scene],
) -> None:
    """An ejection ends without an event; the one who waited first has the trial."""
    busy, ejected = backend("a", "m", 1), backend("b", "m", 1)
    scene = scenes(busy, ejected)
    for _ in range(HealthRules().failures_to_eject):
        Lease(ejected, 0, 0.0).release(Outcome.FAILURE, 0.0)
    first, second = scene.requests("m", "m")
    assert states([first, second]) == ["a", "waits"]
    scene.loop.now = HealthRules().eject_s
    [third] = scene.requests("m")

    assert states([second, third]) == ["b", "waits"]


# Against a naive model: a list of those who wait, searched from the front after every event.


@dataclass
class Place:
    models: str
    room: int
    up: bool = True
    taken: int = 0


class Queue(RuleBasedStateMachine):
    """Events come with or without the loop running in between, so that they meet in all orders."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene([])
        self.places: dict[str, Place] = {}
        self.all: list[Request] = []
        self.waiting: list[tuple[Request, float]] = []
        self.expected: dict[Request, str] = {}
        self.names = 0

    @initialize(rooms=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def start(self, rooms: list[int]) -> None:
        for number, room in enumerate(rooms):
            self.join("mn" if number == 0 else "mo"[: number % 2 + 1], room)

    @rule(models=st.sampled_from(["m", "n", "mn", "mno"]), room=st.integers(1, 3))
    @precondition(lambda self: len(self.places) < 4)
    def join(self, models: str, room: int) -> None:
        self.names += 1
        name = f"b{self.names}"
        self.scene.pool.add(backend(name, models, room))
        self.scene.pool[name].on_change()
        self.places[name] = Place(models, room)

    @rule(data=st.data())
    @precondition(lambda self: len(self.places) > 1)
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.places)))
        self.scene.pool.remove(name)
        del self.places[name]

    @rule(data=st.data())
    @precondition(lambda self: self.places)
    def turn(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.places)))
        place, one = self.places[name], self.scene.pool[name]
        place.up = not place.up
        if place.up:
            one.health.probed(0.0)
        else:
            one.health.down()
        one.on_change()

    @rule(model=st.sampled_from(["m", "n", "o", None]), bound=st.booleans(), data=st.data())
    def arrive(self, model: str | None, bound: bool, data: st.DataObject) -> None:
        names = sorted(self.places)
        only = data.draw(st.sampled_from(names)) if bound and names else None
        excluded = [name for name in names if only is not None and name != only]
        request = self.scene.request(model, *excluded)
        self.all.append(request)
        self.waiting.append((request, self.scene.loop.now + QUEUE_S))

    @rule(data=st.data())
    @precondition(lambda self: any(request.lease is not None for request in self.held()))
    def release(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.held()))
        assert request.lease is not None
        name = request.lease.backend.name
        self.scene.release(request)
        self.all.remove(request)
        if name in self.places and self.scene.pool[name] is request.lease.backend:
            self.places[name].taken -= 1

    @rule(data=st.data())
    @precondition(lambda self: self.waiting)
    def cancel(self, data: st.DataObject) -> None:
        request, _ = entry = data.draw(st.sampled_from(self.waiting))
        self.scene.cancel(request)
        self.waiting.remove(entry)
        self.all.remove(request)

    @rule(seconds=st.integers(1, 12))
    def later(self, seconds: int) -> None:
        self.settle()
        self.scene.loop.now += seconds
        for request, until in list(self.waiting):
            if until <= self.scene.loop.now:
                self.waiting.remove((request, until))
                self.expected[request] = "QueueTimeout"
        self.settle()

    @rule()
    def settle(self) -> None:
        self.scene.loop.settle()
        while self.serve_one():
            pass
        for request in self.all:
            assert request.state == self.expected.get(request, "waits")
        assert self.scene.admission.waiting == len(self.waiting)

    def serve_one(self) -> bool:
        for entry in self.waiting:
            request, _ = entry
            able = [
                name
                for name, place in self.places.items()
                if place.up
                and name not in request.excluded
                and (request.model is None or request.model in place.models)
            ]
            free = [name for name in able if self.places[name].taken < self.places[name].room]
            if free or not able:
                self.waiting.remove(entry)
                # Whoever comes while others wait leaves them a backend with room for both.
                taken = request.state if request.state in free else next(iter(free), None)
                self.expected[request] = taken or "nobody serves it"
                if taken:
                    self.places[taken].taken += 1
                return True
        return False

    def held(self) -> list[Request]:
        return [request for request in self.all if request.lease is not None]

    @invariant()
    def never_more_than_allowed(self) -> None:
        for one in self.scene.pool:
            assert 0 <= one.in_flight <= one.max_in_flight

    def teardown(self) -> None:
        self.settle()
        self.scene.close()


Queue.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestQueue = Queue.TestCase
