"""Keyed digests, and the secret that they are keyed with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.measurement.ledger.digests import HEX, Digests
from prefold.measurement.ledger.secret import kept_secret


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=20), st.integers(0, 30))
def test_what_is_remembered_changes_nothing(prompts: list[list[int]], known: int) -> None:
    """A digest is the same however much of those before it is kept. Keys are chained, as those of
    prompts are."""
    remembers, fresh = Digests(b"s", max_known=known), Digests(b"s")
    for prompt in prompts:
        keys = [hash(tuple(prompt[:end])) % 2**64 for end in range(1, len(prompt) + 1)]
        one = "".join(map(fresh.of_block, keys))
        assert remembers.of_blocks(keys) == one
        assert len(one) == HEX * len(keys)


def test_another_secret_makes_other_digests() -> None:
    """Also secrets beyond BLAKE2b's own limit, which differ in their ends only."""
    secrets = [b"", b"a", b"b", b"x" * 64, b"x" * 65, b"x" * 65 + b"y"]
    made = {Digests(secret).of_block(1) for secret in secrets}
    made |= {Digests(secret).of_conversation(1) for secret in secrets}

    assert len(made) == 2 * len(secrets)


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    """For its owner's eyes only; what is there already is kept."""
    path = tmp_path / "new" / "l.key"
    made = kept_secret(path)

    assert kept_secret(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept_secret(tmp_path / "other.key") != made


def test_a_file_without_a_secret_is_not_taken_for_one(tmp_path: Path) -> None:
    """Every digest would be anybody's to make."""
    path = tmp_path / "l.key"
    path.write_text("\n")

    with pytest.raises(ValueError, match="holds no secret"):
        kept_secret(path)
