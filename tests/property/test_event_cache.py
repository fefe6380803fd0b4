"""A followed engine against a naive model of it: what is claimed is what it holds.

The engine here is a dictionary of blocks that publishes what it does in vLLM's wire format, keeps
the latest batches for replay, forgets all when it begins anew; its link loses messages and breaks.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from prefold.backends.kv_events.changes import Change, Cleared
from prefold.backends.kv_events.follower import Follower, Progress
from prefold.prefix_index.event_cache import EventCache
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.kv_events import CacheSink, engine_seed

SIZE = 2
CAPACITY = 12
SECRET = b"secret"

Tokens = tuple[int, ...]
Space = tuple[str | None, str | None]
"""Adapter and salt."""
Block = tuple[Space, Tokens]
"""All tokens up to its end."""

prompts = st.builds(
    lambda head, tail: (0,) * (2 * SIZE * head) + tuple(tail),
    st.integers(0, 2),
    st.lists(st.integers(0, 1), min_size=SIZE, max_size=2 * SIZE),
)
spaces = st.sampled_from(
    [(None, None), (None, None), ("french", None), (None, "s1"), ("french", "s1")]
)


class Engine:
    """Blocks as a Counter of copies for each tier; the names of blocks are numbers of this life."""

    def __init__(self, life: int, kept: int) -> None:
        self.life = life
        self.device: Counter[Block] = Counter()
        self.host: Counter[Block] = Counter()
        self.names: dict[Block, int] = {}
        self.buffer: deque[list[bytes]] = deque(maxlen=kept)
        self.sent = 0

    def name(self, block: Block) -> int:
        return self.names.setdefault(block, 1000 * self.life + len(self.names))

    def publish(self, *events: dict[str, Any]) -> list[bytes]:
        """One batch; the frames of its message."""
        payload = msgspec.msgpack.encode([1e6 * self.life + self.sent, list(events), 0])
        frames = [b"topic", self.sent.to_bytes(8, "big"), payload]
        self.sent += 1
        self.buffer.append(frames)
        return frames

    def store(self, space: Space, prompt: Tokens) -> dict[str, Any] | None:
        """What a request would: the blocks from the first one on that is not on the device."""
        ends = range(SIZE, len(prompt) + 1, SIZE)
        blocks: list[Block] = [(space, prompt[:end]) for end in ends]
        first = 0
        while first < len(blocks) and self.device[blocks[first]]:
            first += 1
        new = blocks[first:]
        if not new or self.device.total() + len(new) > CAPACITY:
            return None
        self.device.update(new)
        return self.stored(space, blocks, first, "GPU")

    def stored(self, space: Space, blocks: list[Block], first: int, medium: str) -> dict[str, Any]:
        adapter, salt = space
        new = blocks[first:]
        keys = [[adapter] if adapter is not None else [] for _ in new]
        if salt is not None and first == 0:
            keys[0].append(salt)
        return {
            "type": "BlockStored",
            "block_hashes": [self.name(block) for block in new],
            "parent_block_hash": self.name(blocks[first - 1]) if first else None,
            "token_ids": list(blocks[-1][1][first * SIZE :]),
            "block_size": SIZE,
            "lora_name": adapter,
            "lora_id": None if adapter is None else 1,
            "medium": medium,
            "extra_keys": [of_block or None for of_block in keys],
        }

    def match(self, space: Space, prompt: Tokens) -> int:
        """Device from the start without a gap, then host memory; not the last token."""
        count, tier = 0, self.device
        for end in range(SIZE, len(prompt) + 1, SIZE):
            block = space, prompt[:end]
            if tier is self.device and not tier[block]:
                tier = self.host
            if not tier[block]:
                break
            count += 1
        return max(min(count, (len(prompt) - 1) // SIZE), 0) * SIZE


class Watched(CacheSink):
    """Knows whether history began in its midst: then blocks may be unknown that were not missed."""

    complete = False

    def void(self, *, complete: bool) -> None:
        self.complete = complete
        super().void(complete=complete)

    def apply(self, changes: list[Change]) -> None:
        self.complete = self.complete or Cleared() in changes
        super().apply(changes)


class EventMachine(RuleBasedStateMachine):
    """Any order of requests, evictions, resets, lost messages, broken links and restarts."""

    # Most messages come through, and most of the time there is a link.
    lost = st.sampled_from([False] * 7 + [True])
    trouble = st.sampled_from(
        ["disconnect", "restart", "restart unnoticed", "reset", "malformed"] + ["none"] * 3
    )

    @initialize(kept=st.integers(0, 12), replays=st.booleans(), late=st.booleans())
    def start(self, kept: int, replays: bool, late: bool) -> None:
        self.engine = Engine(1, kept)
        self.kept, self.replays = kept, replays
        self.cache = EventCache(
            block_tokens=SIZE,
            capacity_tokens=CAPACITY * SIZE,
            seed_of=lambda adapter, salt: engine_seed(SECRET, adapter, salt),
        )
        self.sink = Watched(self.cache, lambda _: None)
        self.follower = Follower(self.sink, name="engine")
        self.connected = False
        self.missed = False
        """Since the last message that came through: the cache cannot know yet."""
        self.unnoticed = False
        """The same, of a restart."""
        self.seen: set[Block] = set()
        if not late:
            self.connect()

    @rule()
    @precondition(lambda self: not self.connected)
    def connect(self) -> None:
        self.connected = True
        self.catch_up()
        self.missed = self.unnoticed = False

    @rule(trouble=trouble)
    @precondition(lambda self: self.connected)
    def goes_wrong(self, trouble: str) -> None:
        if trouble in ("disconnect", "restart"):
            self.connected = False
            self.follower.disconnected()
        if trouble.startswith("restart"):
            self.engine = Engine(self.engine.life + 1, self.kept)
            self.missed = self.unnoticed = self.connected  # the new one's first message tells
        if trouble == "reset":
            self.engine.device.clear()
            self.engine.host.clear()
            self.deliver(self.engine.publish({"type": "AllBlocksCleared"}), lost=False)
        if trouble == "malformed" and not self.missed:
            self.engine.sent += 1
            assert self.follower.live([b"topic", b"\0" * 8, b"\xc1"])
            assert self.cache.problem

    def catch_up(self) -> None:
        """As the subscriber does."""
        for _ in range(2 if self.replays else 0):
            start = self.follower.begin_replay()
            wanted = [m for m in self.engine.buffer if int.from_bytes(m[1], "big") >= start]
            progress = Progress.MORE
            for frames in [*wanted, [b"", (-1).to_bytes(8, "big", signed=True), b""]]:
                progress = self.follower.replayed([b"", *frames])
                if progress is not Progress.MORE:
                    break
            if progress is Progress.DONE:
                return
        self.follower.no_replay()

    def deliver(self, frames: list[bytes], lost: bool) -> None:
        if not self.connected:
            return
        if lost and not self.unnoticed:
            self.missed = True
            return
        if not self.follower.live(frames):
            self.catch_up()
            if not self.follower.live(frames):
                self.follower.no_replay()
                assert self.follower.live(frames)
        self.missed = self.unnoticed = False

    @rule(space=spaces, prompt=prompts, lost=lost)
    def request(self, space: Space, prompt: Tokens, lost: bool) -> None:
        self.seen.update((space, prompt[:end]) for end in range(SIZE, len(prompt) + 1, SIZE))
        event = self.engine.store(space, prompt)
        if event is not None:
            self.deliver(self.engine.publish(event), lost)

    @rule(pick=st.integers(0, 99), host=st.booleans(), lost=lost)
    def evict(self, pick: int, host: bool, lost: bool) -> None:
        """Any block at all, not only tails."""
        tier = self.engine.host if host else self.engine.device
        if not tier:
            return
        block = sorted(tier, key=repr)[pick % len(tier)]
        tier[block] -= 1
        if not tier[block]:
            del tier[block]
        event = {"type": "BlockRemoved", "block_hashes": [self.engine.name(block)]}
        self.deliver(self.engine.publish({**event, "medium": "CPU" if host else "GPU"}), lost)

    @rule(pick=st.integers(0, 99), by_name=st.booleans(), lost=lost)
    def offload(self, pick: int, by_name: bool, lost: bool) -> None:
        """A block that is on the device is copied to host memory, told with its tokens or not."""
        held = sorted(filter(self.has_parent, self.engine.device), key=repr)
        if not held or self.engine.host.total() >= CAPACITY:
            return
        space, prompt = block = held[pick % len(held)]
        self.engine.host[block] += 1
        blocks: list[Block] = [(space, prompt[:end]) for end in range(SIZE, len(prompt) + 1, SIZE)]
        event = self.engine.stored(space, blocks, len(blocks) - 1, "CPU")
        if by_name:
            event = {**event, "token_ids": [], "block_size": 0, "extra_keys": None}
        self.deliver(self.engine.publish(event), lost)

    def has_parent(self, block: Block) -> bool:
        space, prompt = block
        before = space, prompt[:-SIZE]
        return not before[1] or before in self.engine.device or before in self.engine.host

    @rule(space=spaces, prompt=prompts)
    def promise(self, space: Space, prompt: Tokens) -> None:
        """A request in flight is seen by the next one, and leaves nothing if it is not computed."""
        asked = prefix_of(space, (*prompt, 9))
        before = self.cache.match(asked).cached_tokens
        placement = self.cache.begin(asked, 0.0)
        assert placement.cached_tokens == before
        if not self.cache.problem:
            whole = min(len(prompt) // SIZE, CAPACITY) * SIZE
            assert self.cache.match(asked).cached_tokens == whole
        self.cache.finish(placement, 0.0, computed=False)
        assert self.cache.match(asked).cached_tokens == before

    @invariant()
    def claims_what_the_engine_holds(self) -> None:
        """All of it if all of its history is known, never more than it otherwise, and nothing
        while the link is down."""
        if not hasattr(self, "seen") or self.missed:
            return
        for space, tokens in self.seen:
            for prompt in (tokens, (*tokens, 9)):
                found = self.cache.match(prefix_of(space, prompt)).cached_tokens
                held = self.engine.match(space, prompt)
                if not self.connected:
                    assert found == 0
                elif self.sink.complete:
                    assert self.cache.problem == ""
                    assert found == held
                else:
                    assert found <= held

    @invariant()
    def stays_within_its_bounds(self) -> None:
        if hasattr(self, "cache"):
            assert self.cache.size_tokens <= CAPACITY * SIZE * 2


def prefix_of(space: Space, prompt: Tokens) -> Prefix:
    return Prefix.of_tokens(np.array(prompt, dtype=np.uint32), engine_seed(SECRET, *space))


TestEventMachine = EventMachine.TestCase
TestEventMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
