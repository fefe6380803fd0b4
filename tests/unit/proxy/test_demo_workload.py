"""The demo's requests: seeded, shuffled, and sharing exactly what they are meant to share."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.demo.workload import CHARS_PER_TOKEN, TURNS, Request, build_workload


def workload(
    seed: int = 1, tenants: int = 4, requests: int = 36, prefix_tokens: int = 350
) -> tuple[Request, ...]:
    return build_workload(
        seed=seed, tenants=tenants, requests=requests, prefix_tokens=prefix_tokens
    )


def test_a_seed_means_one_workload() -> None:
    """The same arguments give the same bytes, another seed other ones."""
    assert workload(seed=7) == workload(seed=7)
    assert workload(seed=7) != workload(seed=8)


@given(
    seed=st.integers(),
    tenants=st.integers(1, 9),
    requests=st.integers(1, 60),
    prefix_tokens=st.integers(1, 500),
)
def test_turns_follow_and_extend_each_other(
    seed: int, tenants: int, requests: int, prefix_tokens: int
) -> None:
    """Within a conversation each request is the one before it, an answer and a new user turn."""
    sent = workload(seed, tenants, requests, prefix_tokens)

    assert len(sent) == requests
    last: dict[int, Request] = {}
    for request in sent:
        roles = [message["role"] for message in request.messages]
        assert roles == ["system", *["user", "assistant"] * request.turn, "user"]
        before = last.get(request.conversation)
        assert request.turn == (0 if before is None else before.turn + 1) < TURNS
        if before is not None:
            assert request.messages[: len(before.messages)] == before.messages
        last[request.conversation] = request


@given(seed=st.integers(), tenants=st.integers(1, 70))
def test_a_system_prompt_belongs_to_one_tenant(seed: int, tenants: int) -> None:
    """All requests of a tenant share it, and no two tenants share even its first sentence."""
    systems: dict[int, set[str]] = {}
    for request in workload(seed, tenants, requests=tenants * TURNS, prefix_tokens=40):
        systems.setdefault(request.tenant, set()).add(request.messages[0]["content"])

    assert len(systems) == tenants
    first_sentences = set()
    for texts in systems.values():
        (text,) = texts
        first_sentences.add(text.partition(".")[0])
    assert len(first_sentences) == tenants


@pytest.mark.parametrize("prefix_tokens", [60, 350, 2000])
def test_system_prompts_have_the_length_asked_for(prefix_tokens: int) -> None:
    """At least that long by the estimate, and longer by one sentence at most."""
    for request in workload(prefix_tokens=prefix_tokens):
        length = len(request.messages[0]["content"])
        assert 0 <= length - prefix_tokens * CHARS_PER_TOKEN < 120


def test_tenants_get_equal_shares_in_a_shuffled_order() -> None:
    """Strict alternation of tenants would make round robin an affinity policy."""
    tenants = [request.tenant for request in workload()]

    assert sorted(tenants) == sorted(list(range(4)) * 9)
    for one, other in combinations(range(4), 2):
        pair = [tenant for tenant in tenants if tenant in (one, other)]
        assert pair not in ([one, other] * 9, [other, one] * 9)
