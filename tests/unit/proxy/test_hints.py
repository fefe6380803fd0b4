"""What clients say of which requests belong together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from prefold.proxy.hints import MAX_CHARS, Hints

SESSION, OTHER = "X-Session-ID", "X-SMG-Routing-Key"
HINTS = Hints(prompt_cache_key=True, session_headers=(SESSION, OTHER))


def headers(**values: str) -> CIMultiDictProxy[str]:
    named = {name.replace("_", "-"): value for name, value in values.items()}
    return CIMultiDictProxy(CIMultiDict(named))


NONE = headers()


def affinity(hints: Hints, sent: CIMultiDictProxy[str], key: Any, seed: int) -> int | None:
    return hints.affinity(hints.session(sent), key, seed)


def test_the_body_counts_before_headers_and_headers_in_the_order_of_the_settings() -> None:
    """Names of headers are compared as HTTP does."""
    key = affinity(HINTS, headers(x_session_id="s"), "k", 1)
    first = affinity(HINTS, headers(x_smg_routing_key="r", X_SESSION_ID="s"), None, 1)

    assert key == affinity(HINTS, NONE, "k", 1)
    assert first == affinity(HINTS, headers(x_session_id="s"), None, 1)
    assert affinity(HINTS, headers(x_smg_routing_key="r"), None, 1) not in (key, first, None)


@pytest.mark.parametrize("value", [None, "", 7, ["k"], {"k": 1}, True])
def test_what_is_no_text_is_no_hint(value: Any) -> None:
    """An engine may refuse it; we do not."""
    assert affinity(HINTS, NONE, value, 1) is None
    assert affinity(HINTS, headers(x_session_id="s"), value, 1) is not None
    assert affinity(HINTS, headers(x_session_id=""), value, 1) is None


def test_each_kind_of_hint_can_be_turned_off() -> None:
    """Then it is a member, or a header, like any other."""
    only_headers = Hints(prompt_cache_key=False, session_headers=(SESSION,))
    only_keys = Hints(prompt_cache_key=True, session_headers=())

    assert affinity(only_headers, headers(x_smg_routing_key="r"), "k", 1) is None
    assert affinity(only_keys, headers(x_session_id="s"), None, 1) is None


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 2**64 - 1))
def test_equal_hints_meet_within_a_namespace_only(one: str, other: str, seed: int) -> None:
    """Lone surrogates included; of a long one, the beginning counts."""
    key = affinity(HINTS, NONE, one, seed)

    assert key == affinity(HINTS, NONE, one, seed)
    assert (key == affinity(HINTS, NONE, other, seed)) == (one == other)
    assert key != affinity(HINTS, NONE, one, seed ^ 1)
    long = one * MAX_CHARS
    assert affinity(HINTS, NONE, long + other, seed) == affinity(HINTS, NONE, long, seed)
