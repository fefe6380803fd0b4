"""The memo of chains against a chain that is made anew each time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from prefold.prefix_index.chain_memo import ChainMemo

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=40), min_size=1, max_size=12)


def naive(tokens: list[int], seed: int, block: int) -> list[int]:
    """xxh3 of each full block, seeded with the key before it."""
    units, keys, key = np.array(tokens, dtype=np.uint32), [], seed
    for start in range(0, len(units) - block + 1, block):
        key = xxh3_64_intdigest(units[start : start + block].tobytes(), key)
        keys.append(key)
    return keys


@given(PROMPTS, st.integers(1, 5), st.sampled_from([0, 20, 10_000]), st.data())
def test_a_chain_is_the_same_with_and_without_memory(
    prompts: list[list[int]], block: int, max_tokens: int, data: st.DataObject
) -> None:
    """Whatever came before, of whatever namespace and block size, however little it may hold."""
    memo = ChainMemo(max_tokens)
    made = []
    for prompt in prompts:
        seed = data.draw(st.integers(0, 1))
        size = data.draw(st.sampled_from([block, block + 1]))
        chain = memo.chain(np.array(prompt, dtype=np.uint32), seed, size)
        made.append((chain, naive(prompt, seed, size)))

    assert all(chain == expected for chain, expected in made)  # also those given out before
