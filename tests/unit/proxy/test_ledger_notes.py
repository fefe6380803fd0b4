"""Keys of prompts, by which the ledger tells what is equal."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefold.backends.backend import Mode
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.conversations import Conversations
from prefold.proxy.errors import NotEncodable
from prefold.proxy.ledger_notes import BLOCK_TOKENS, BlockKeys, LedgerNotes
from prefold.proxy.prompt import Prompt


@given(
    prompts=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=6), st.integers(0, 511)),
        max_size=20,
    ),
    memo=st.sampled_from([0, 3 * 4 * BLOCK_TOKENS, 2**20]),
    worth=st.integers(1, 4),
)
def test_the_memo_changes_no_key(
    prompts: list[tuple[int, list[int], int]], memo: int, worth: int
) -> None:
    """Prompts that share some blocks: keys are those of a chain made from nothing."""
    remembering = BlockKeys(memo, worth)
    for seed, contents, rest in prompts:
        blocks = [np.full(BLOCK_TOKENS, content, np.uint32) for content in contents]
        units = np.concatenate([*blocks, np.zeros(rest, np.uint32)])
        fresh = ChainMemo(0).chain(units, seed, BLOCK_TOKENS)
        before, last = remembering.of(Prefix.of_tokens(units, seed))
        assert [*before, *(() if last is None else (last,))] == fresh


async def test_a_prompt_whose_ids_come_late_is_noted_whole() -> None:
    """And not at all if they never came: its beginning alone would pass for all of it."""
    loop = asyncio.get_running_loop()
    ids = np.arange(3 * BLOCK_TOKENS + 5, dtype=np.uint32)
    whole = Prefix.of_tokens(ids, 1)
    beginning = Prefix.of_tokens(ids[:BLOCK_TOKENS], 1, length=len(ids))

    def noted(come: asyncio.Future[Prefix]) -> tuple[int | None, int]:
        record = RequestRecord(endpoint="", received=0.0)
        LedgerNotes(Conversations(b"s")).prompt(
            Prompt({Mode.FEEDBACK: beginning}, len(ids), come), record
        )
        return record.prefix_tokens, len(record.blocks)

    come: asyncio.Future[Prefix] = loop.create_future()
    assert noted(come) == (None, 0)
    come.set_result(whole)
    assert noted(come) == (len(ids), 2)
    failed: asyncio.Future[Prefix] = loop.create_future()
    failed.set_exception(NotEncodable("it is not known"))
    assert noted(failed) == (None, 0)
