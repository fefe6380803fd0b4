"""What other policies would have reused, against caches whose answer is plain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.benefit.counterfactual import (
    BLOCK_TOKENS,
    Begun,
    Counterfactual,
    counterfactual,
)
from prefold.measurement.ledger.reader import LedgerRow
from prefold.proxy.shadow import ShadowCache
from tests.support.benefit import START, row

TWO = {"m": ["b0", "b1"]}
ROOMY = 10_000 * BLOCK_TOKENS


def asked(number: int, *blocks: int, at: float | None = None, **members: object) -> LedgerRow:
    """A prompt of these blocks (numbers for digests) and a rest of 100 tokens."""
    return row(
        number,
        prompt=len(blocks) * BLOCK_TOKENS + 100,
        uncached=100,
        blocks=[block.to_bytes(8, "little") for block in blocks],
        received=START + (number if at is None else at),
        **members,
    )


def told(rows: Sequence[LedgerRow], *, cache_tokens: int = ROOMY) -> Counterfactual:
    made = counterfactual(rows, TWO, lambda: ShadowCache(cache_tokens), cache_tokens)
    assert made is not None
    return made


def reused(rows: Sequence[LedgerRow], *, cache_tokens: int = ROOMY) -> dict[str, int]:
    """In blocks."""
    made = told(rows, cache_tokens=cache_tokens)
    return {shadow.policy: shadow.reused_tokens // BLOCK_TOKENS for shadow in made.shadows}


def test_what_round_robin_sends_elsewhere_is_computed_again() -> None:
    """One prompt four times, all to b0: routed so, three reuse it; in turn, two do."""
    made = reused([asked(number, 1, 2, 3) for number in range(4)])

    assert made == {"as routed": 9, "round robin": 6, "least load": 6, "rendezvous": 9}


def test_requests_are_in_flight_for_as_long_as_they_were() -> None:
    """Least load goes by those whose end is still to come: here the first ones last."""
    long = [asked(1, 1, at=0.0, end=100.0), asked(2, 1, at=1.0, end=1.5)]
    after = [asked(number, 1, at=1.0 + number, end=0.5) for number in range(3, 7)]

    # All but the first go to the other backend, and all but the first of those reuse the block.
    assert reused([*long, *after])["least load"] == 4


def test_a_cache_that_is_too_small_forgets() -> None:
    """Two prompts in turn, in a cache that holds one of them."""
    rows = [asked(number, *((1, 2) if number % 2 else (3, 4))) for number in range(6)]

    assert reused(rows)["as routed"] == 8
    assert reused(rows, cache_tokens=2 * BLOCK_TOKENS)["as routed"] == 0


def test_rows_that_say_too_little_are_left_out_and_counted() -> None:
    """No blocks where there should be some, nothing sent, an unknown length, no such model."""
    good = asked(1, 1, 2)
    rows = [
        good,
        row(2, prompt=2000, blocks=[]),
        asked(3, 1, 2, sent=None),
        asked(4, 1, 2, prefix_tokens=None),
        asked(5, 1, 2, model="other"),
    ]
    made = told(rows)

    assert (made.requests, made.left_out) == (1, 4)
    assert made.prompt_tokens == good.prompt_tokens
    assert counterfactual(rows[1:], TWO, lambda: ShadowCache(ROOMY), ROOMY) is None


def test_the_simulation_is_told_beside_what_engines_reported_of_the_same() -> None:
    """So that one can see how far to trust it."""
    rows = [
        asked(1, 1, 2, reported_tokens=0),
        asked(2, 1, 2, reported_tokens=1000),
        asked(3, 1, 2, reported_tokens=None),
    ]
    made = told(rows)

    assert made.reported_requests == 2
    assert (made.reported_tokens, made.modelled_tokens) == (1000, 2 * BLOCK_TOKENS)


def test_what_is_shared_within_a_block_is_not_seen_and_that_is_told() -> None:
    """Engines reused tokens of prompts that share no block: nothing is known of other policies."""
    rows = [asked(number, number, reported_tokens=300) for number in (1, 2)]

    assert told(rows).blind
    assert not told([asked(1, 1, 2), asked(2, 1, 2, reported_tokens=1000)]).blind


def test_prompts_known_by_bytes_only_count_as_the_engine_counts() -> None:
    """Of units of four bytes there are as many blocks; tokens are those of the engine."""
    rows = [
        asked(number, 1, 2, original_tokens=None, prompt_tokens=562, reported_tokens=None)
        for number in range(2)
    ]
    made = told(rows)

    assert made.prompt_tokens == 2 * 562
    assert made.shadows[0].reused_tokens == round(2 * BLOCK_TOKENS * 562 / (2 * BLOCK_TOKENS + 100))


class EndlessCache:
    """Keeps all it saw."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def begin(self, blocks: Sequence[bytes], length: int, now: float) -> Begun:
        held = 0
        while held < len(blocks) and blocks[held] in self._seen:
            held += 1
        self._seen.update(blocks)
        return held * BLOCK_TOKENS, partial(self._finish, len(blocks))

    def _finish(self, blocks: int, now: float) -> None:
        pass


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(["b0", "b1"])),
        min_size=1,
        max_size=30,
    )
)
def test_the_cache_model_of_routing_is_one_of_endless_room(
    asks: list[tuple[int, int, str]],
) -> None:
    """Fed with digests, as with tokens: the same as a plain set where nothing is evicted."""
    rows = [
        asked(number, *(10 * talk + depth for depth in range(blocks)), backend=backend)
        for number, (talk, blocks, backend) in enumerate(asks, 1)
    ]

    assert told(rows) == counterfactual(rows, TWO, EndlessCache, ROOMY)


def test_one_policy_can_beat_another_by_no_more_than_all() -> None:
    """Shares are of all prompt tokens."""
    made = told([asked(number, 1, 2, 3) for number in range(100)])

    assert made.shadows[0].share == pytest.approx(99 * 3 * BLOCK_TOKENS / made.prompt_tokens)


def test_a_shortened_prompt_counts_as_it_was_sent() -> None:
    """Its blocks are those of what the engine had."""
    made = told([asked(number, 1, 2, original_tokens=5000) for number in range(2)])

    assert made.prompt_tokens == 2 * (2 * BLOCK_TOKENS + 100)
    assert made.shadows[0].reused_tokens == 2 * BLOCK_TOKENS
