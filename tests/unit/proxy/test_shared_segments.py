"""What is kept of texts, as Redis holds it: sealed, bound to its text, and bounded in bytes."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.segment_cache import Kept, kept_of
from prefold.proxy.compression.sealed_kept import MAX_BYTES, STREAM, SealedKept
from prefold.proxy.compression.write_budget import PARTS, WriteBudget
from prefold.proxy.replicas.seal import Seal, Unreadable

pytest.importorskip("cryptography")

SECRET = b"the secret of a deployment"
KEY, LENGTH = b"k" * 16, 1000
KEPT = Kept(array("I", [0, 10, 300, 999]), 709)


def sealed(secret: bytes = SECRET) -> SealedKept:
    return SealedKept(Seal(secret))


def closed(by: SealedKept, kept: Kept = KEPT, length: int = LENGTH) -> bytes:
    content = by.close(KEY, kept, length)
    assert content is not None
    return content


@given(st.sets(st.integers(0, 5000), min_size=2), st.integers(0, 3))
def test_another_process_reads_what_was_kept(bounds: set[int], more: int) -> None:
    """Whatever it is: offsets go there and back, and so does that a text is best left alone."""
    offsets = sorted(bounds)
    spans = offsets[: len(offsets) // 2 * 2]
    length = spans[-1] + more
    kept = kept_of(spans, length)
    assert kept is not None
    assert sealed().open(KEY, length, closed(sealed(), kept, length)) == kept


@pytest.mark.parametrize(
    ("key", "length", "secret"),
    [
        (b"o" * 16, LENGTH, SECRET),
        (KEY, LENGTH + 1, SECRET),
        (KEY, LENGTH, b"the secret of another one"),
    ],
)
def test_a_value_is_of_one_text_and_one_secret(key: bytes, length: int, secret: bytes) -> None:
    """One that was put under another key is nothing."""
    with pytest.raises(Unreadable):
        sealed(secret).open(key, length, closed(sealed()))


def test_what_was_changed_is_nothing() -> None:
    """Each of its bits counts, and so does its end."""
    content, reader = closed(sealed()), sealed()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1
        with pytest.raises(Unreadable):
            reader.open(KEY, LENGTH, bytes(changed))
    for cut in (b"", content[:10], content[:-1], content + b"x", b"x" * (MAX_BYTES + 1)):
        with pytest.raises(Unreadable):
            reader.open(KEY, LENGTH, cut)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x94\x02\xc4\x01k\x01\x90",  # of version 2
        b"\x94\x01\xc4\x10" + KEY + b"\xcd\x03\xe8\x92\x05\xff",  # a step back
        b"\x94\x01\xc4\x10" + KEY + b"\xcd\x03\xe8\x91\x05",  # no end
        b"\x94\x01\xc4\x10" + KEY + b"\xcd\x03\xe8\x92\x05\xcd\x03\xe8",  # beyond the text
    ],
)
def test_what_another_version_sealed_is_nothing(plain: bytes) -> None:
    """Under our own secret, too, spans are checked."""
    with pytest.raises(Unreadable):
        sealed().open(KEY, LENGTH, Seal(SECRET).close(STREAM, 1, plain))


def test_too_much_is_not_shared() -> None:
    """A value is bounded in bytes, and its two ends agree on the bound."""
    writer, spans = sealed(), array("I", range(2 * MAX_BYTES))
    assert writer.close(KEY, Kept(spans, MAX_BYTES), len(spans)) is None
    fits = array("I", range(MAX_BYTES // 2))
    content = writer.close(KEY, Kept(fits, len(fits) // 2), len(fits))
    assert content is not None
    assert sealed().open(KEY, len(fits), content).spans == fits


def test_no_number_comes_twice() -> None:
    """The same content sealed again is other bytes: a nonce that came again would give it away."""
    writer = sealed()
    assert len({closed(writer) for _ in range(20)}) == 20


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 60))))
def test_what_is_alive_stays_within_the_bound(steps: list[tuple[float, int]]) -> None:
    """Against a list of all that was written; what would fit is refused only for a step of the
    time longer than it had to be."""
    budget, now = WriteBudget(max_bytes=100, ttl_s=64.0), 0.0
    written: list[tuple[float, int]] = []
    for pause, size in steps:
        now += pause
        alive = sum(of for at, of in written if now - at < 64.0)
        maybe = sum(of for at, of in written if now - at < 64.0 + 64.0 / PARTS)
        if budget.take(size, now):
            written.append((now, size))
            assert alive + size <= 100
        else:
            assert maybe + size > 100
