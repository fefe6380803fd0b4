"""The memo keeps to its bound and forgets what was not used for longest."""

from __future__ import annotations

import numpy as np

from prefold.proxy.tokens.segment_memo import SegmentMemo


def ids(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.arange(count, dtype=np.uint32)


def test_what_was_used_last_is_kept() -> None:
    """A look-up counts as use; the bound is on bytes, not entries."""
    memo = SegmentMemo(2900)
    for name in "abc":
        memo.put(name, ids(100))
    assert memo.get("a") is not None
    memo.put("d", ids(400))
    assert [name for name in "abcd" if memo.get(name) is not None] == ["a", "d"]
    assert 0 < memo.bytes <= 2900


def test_what_is_larger_than_the_bound_displaces_nothing() -> None:
    """One huge prompt must not empty the memo."""
    memo = SegmentMemo(2000)
    memo.put("a", ids(10))
    memo.put("huge", ids(1000))
    assert memo.get("a") is not None
    assert memo.get("huge") is None


def test_the_size_returns_to_zero() -> None:
    """Bytes are given back exactly, also for a text that is put twice."""
    memo = SegmentMemo(100_000)
    memo.put("a", ids(10))
    size = memo.bytes
    memo.put("a", ids(10))
    assert (memo.bytes, len(memo)) == (size, 1)
    memo.put("b" * 99_600, ids(1))
    assert memo.get("a") is None
    assert len(memo) == 1
