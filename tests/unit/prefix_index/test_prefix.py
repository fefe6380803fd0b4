"""Seeds, keys and affinities of prompts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from prefold.prefix_index.prefix import Prefix, namespace_seed

SECRET = b"a secret of this deployment"


def seed(
    secret: bytes = SECRET,
    model: str = "m",
    adapter: str | None = None,
    cache_salt: str | None = None,
    tenant: str | None = None,
) -> int:
    return namespace_seed(
        secret, model=model, adapter=adapter, cache_salt=cache_salt, tenant=tenant
    )


def tokens(*ids: int, seed: int = 1) -> Prefix:
    return Prefix.of_tokens(np.array(ids, dtype=np.uint32), seed)


def test_every_field_parts_namespaces() -> None:
    """No two of these are one namespace: None is not "", and text does not move between fields."""
    values = (None, "", "a", "ab", "b", "a\x00b", "\udc80")
    seeds = [
        seed(model=model, adapter=adapter, cache_salt=salt, tenant=tenant)
        for model in ("", "a", "ab")
        for adapter, salt, tenant in itertools.product(values, repeat=3)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= each < 2**64 for each in seeds)


def test_seed_is_stable_and_secret() -> None:
    """Replicas with one secret agree, others cannot guess; a long secret is used to its end."""
    assert seed() == seed()
    assert seed() != seed(secret=b"another")
    assert seed(secret=b"x" * 100) != seed(secret=b"x" * 99 + b"y")


def test_prefix_of_tokens() -> None:
    """Units are the tokens as given."""
    prefix = tokens(5, 6, 7)
    assert (prefix.length, prefix.unit_tokens, prefix.units.tolist()) == (3, 1, [5, 6, 7])
    assert "5" not in repr(prefix)


def test_tokens_of_a_view_that_is_not_contiguous() -> None:
    """Keys depend on the ids, not on how the array lies in memory."""
    strided = np.arange(40, dtype=np.uint32)[::2]
    one = Prefix.of_tokens(strided, 1)
    other = Prefix.of_tokens(strided.copy(), 1)
    assert one.chain(4) == other.chain(4)
    assert one.affinity() == other.affinity()


def test_chain_covers_full_blocks_only() -> None:
    """The rest that fills no block has no key, and no influence."""
    assert [len(tokens(*range(count)).chain(4)) for count in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert tokens(*range(7)).chain(4) == tokens(0, 1, 2, 3, 9).chain(4)


def test_chain_key_stands_for_all_before_it() -> None:
    """Equal blocks after different ones have different keys."""
    one, other = tokens(1, 1, 2, 2), tokens(3, 3, 2, 2)
    assert one.chain(2)[1] != other.chain(2)[1]


def test_chain_is_computed_once_for_each_block_size() -> None:
    """All backends with blocks of one size share the work."""
    prefix = tokens(*range(64))
    assert prefix.chain(16) is prefix.chain(16)
    assert len(prefix.chain(32)) == 2


def test_ready_keys() -> None:
    """A trace's keys are the chain of its own block size, without the partial last block."""
    prefix = Prefix.of_blocks([11, 12, 2**64 - 1], 512, 1200)
    assert prefix.chain(512) == [11, 12]
    assert (prefix.length, prefix.unit_tokens) == (1200, 512)
    assert prefix.units.tolist() == [11, 12, 2**64 - 1]
    assert Prefix.of_blocks([11, 12], 512, 1200).chain(512) == [11, 12]
    with pytest.raises(ValueError, match="no blocks of 16"):
        prefix.chain(16)


@pytest.mark.parametrize(("count", "block", "length"), [(1, 512, 1200), (4, 512, 1200), (1, 0, 1)])
def test_ready_keys_cover_the_length(count: int, block: int, length: int) -> None:
    """Keys for fewer or more tokens than there are make no prompt."""
    with pytest.raises(ValueError, match="do not cover"):
        Prefix.of_blocks(list(range(count)), block, length)


def test_affinity_of_ready_keys() -> None:
    """The key that reaches the wanted length decides; a shorter prompt's last one does."""
    one, other = Prefix.of_blocks([1, 2, 3], 128, 384), Prefix.of_blocks([1, 2, 4], 128, 384)
    assert one.affinity(256) == other.affinity(256)
    assert one.affinity(257) != other.affinity(257)
    assert Prefix.of_blocks([1], 128, 128).affinity() != one.affinity()


def test_affinity_of_an_empty_prompt() -> None:
    """Well defined, and that of its namespace."""
    assert tokens().affinity() == tokens().affinity()
    assert tokens(seed=1).affinity() != tokens(seed=2).affinity()
