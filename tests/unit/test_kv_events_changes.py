"""What KV events mean: tiers, adapters, salts, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prefold.backends.kv_events import codec
from prefold.backends.kv_events.changes import (
    Change,
    Cleared,
    CopiedToHost,
    Refused,
    Removed,
    Stored,
    changes,
)


def of(*events: dict[str, Any]) -> list[Change]:
    return changes(codec.batch(msgspec.msgpack.encode([1.0, list(events), 0])))


def stored(**members: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [1, 2],
        "parent_block_hash": None,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        **members,
    }


def one(**members: Any) -> Stored:
    (change,) = of(stored(**members))
    assert isinstance(change, Stored)
    return change


def test_blocks_are_stored_removed_and_cleared() -> None:
    """In the order of the events."""
    first, second, third = of(
        stored(), {"type": "BlockRemoved", "block_hashes": [1]}, {"type": "AllBlocksCleared"}
    )
    assert isinstance(first, Stored)
    assert (first.handles, first.parent, first.block_tokens) == ((1, 2), None, 2)
    assert (first.adapter, first.salt, first.foreign, first.host) == (None, None, None, False)
    assert second == Removed(handles=(1,), host=False)
    assert third == Cleared()


@pytest.mark.parametrize("medium", ["CPU", "CPU_PINNED"])
def test_host_memory_is_a_tier_of_its_own(medium: str) -> None:
    """What goes from the GPU may stay there, and the other way round."""
    assert one(medium=medium).host
    assert not one(medium="GPU").host
    removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": medium}
    assert of(removed) == [Removed(handles=(1,), host=True)]


@pytest.mark.parametrize(
    "members", [{"medium": "STORAGE"}, {"medium": "DISK"}, {"medium": "CPU", "locality": "REMOTE"}]
)
def test_disks_and_remote_stores_are_passed_over(members: dict[str, Any]) -> None:
    """Both their stores and their removals."""
    removed = {"type": "BlockRemoved", "block_hashes": [1], **members}
    assert of(stored(**members), removed) == []


def test_a_copy_in_host_memory_may_be_told_by_its_handle_alone() -> None:
    """vLLM's offloading connector sends no tokens unless it is asked to."""
    placeholder = stored(block_hashes=[7], token_ids=[], block_size=0, medium="CPU")
    assert of(placeholder) == [CopiedToHost(handles=(7,))]


def test_the_salt_is_found_among_the_extra_keys() -> None:
    """In the first block of a prompt, behind the adapter's name and media."""
    assert one(extra_keys=[["tenant1"], None]).salt == "tenant1"
    assert one(extra_keys=[["tenant1"], None]).foreign is None
    both = one(extra_keys=[["french", "tenant1"], ["french"]], lora_name="french", lora_id=1)
    assert (both.adapter, both.salt, both.foreign) == ("french", "tenant1", None)
    assert one(cache_salt="tenant1").salt == "tenant1"


def test_an_adapter_is_not_taken_for_a_salt() -> None:
    """Its name comes first, and only if the event names it."""
    event = one(extra_keys=[["french"], ["french"]], lora_name="french")
    assert (event.adapter, event.salt, event.foreign) == ("french", None, None)


def test_what_no_prompt_of_ours_can_have_stays_in_the_key() -> None:
    """Images, digests of embeddings, adapters without a name: different ones stay apart."""
    image = one(extra_keys=[["tenant1"], [["image", 5]]])
    assert image.salt == "tenant1"
    assert image.foreign is not None
    assert image.foreign[0] == b""
    assert image.foreign[1]
    other = one(extra_keys=[["tenant1"], [["other", 5]]])
    assert image.foreign != other.foreign
    embeddings = one(extra_keys=[["tenant1", "digest"], None])
    assert embeddings.salt is None
    assert embeddings.foreign is not None
    assert embeddings.foreign[0]
    nameless = one(lora_id=3)
    assert nameless.foreign is not None
    assert all(nameless.foreign)
    assert nameless.foreign != one(lora_id=4).foreign


def test_a_text_behind_the_first_block_is_no_salt() -> None:
    """vLLM salts only the beginning of a prompt."""
    later = one(parent_block_hash=9, extra_keys=[["digest"], None])
    assert later.salt is None
    assert later.foreign is not None


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"kv_cache_spec_kind": "sliding_window"}, "sliding_window"),
        ({"kv_cache_spec_kind": "mamba"}, "mamba"),
        ({"kv_cache_spec_kind": "of tomorrow"}, "unknown"),
        ({"group_idx": 1}, "several groups"),
        ({"token_ids": [[1, 2], [2, 3]]}, "EAGLE"),
        ({"token_ids": [1, 2, 3, 4, 5, 6]}, "leave out blocks"),
        ({"token_ids": [], "block_size": 0}, "leave out blocks"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_reason(
    members: dict[str, Any], reason: str
) -> None:
    """Sliding windows, several groups, pairs of tokens, blocks that are not those of the tokens."""
    (change,) = of(stored(**members))
    assert isinstance(change, Refused)
    assert reason in change.reason


@pytest.mark.parametrize("kind", ["full_attention", "mla_attention", "sink_full_attention", None])
def test_layers_that_need_the_whole_prefix_are_understood(kind: str | None) -> None:
    """Whatever is in their blocks."""
    assert one(kv_cache_spec_kind=kind, group_idx=0).handles == (1, 2)
