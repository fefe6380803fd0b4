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


def test_the_body_counts_before_headers_and_headers_in_the_order_of_the_settings() -> None:
    """Names of headers are compared as HTTP does."""
    key = HINTS.affinity(headers(x_session_id="s"), "k", 1)
    first = HINTS.affinity(headers(x_smg_routing_key="r", X_SESSION_ID="s"), None, 1)

    assert key == HINTS.affinity(NONE, "k", 1)
    assert first == HINTS.affinity(headers(x_session_id="s"), None, 1)
    assert HINTS.affinity(headers(x_smg_routing_key="r"), None, 1) not in (key, first, None)


@pytest.mark.parametrize("value", [None, "", 7, ["k"], {"k": 1}, True])
def test_what_is_no_text_is_no_hint(value: Any) -> None:
    """An engine may refuse it; we do not."""
    assert HINTS.affinity(NONE, value, 1) is None
    assert HINTS.affinity(headers(x_session_id="s"), value, 1) is not None
    assert HINTS.affinity(headers(x_session_id=""), value, 1) is None


def test_each_kind_of_hint_can_be_turned_off() -> None:
    """Then it is a member, or a header, like any other."""
    only_headers = Hints(prompt_cache_key=False, session_headers=(SESSION,))
    only_keys = Hints(prompt_cache_key=True, session_headers=())

    assert only_headers.affinity(headers(x_smg_routing_key="r"), "k", 1) is None
    assert only_keys.affinity(headers(x_session_id="s"), None, 1) is None


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 2**64 - 1))
def test_equal_hints_meet_within_a_namespace_only(one: str, other: str, seed: int) -> None:
    """Lone surrogates included; of a long one, the beginning counts."""
    key = HINTS.affinity(NONE, one, seed)

    assert key == HINTS.affinity(NONE, one, seed)
    assert (key == HINTS.affinity(NONE, other, seed)) == (one == other)
    assert key != HINTS.affinity(NONE, one, seed ^ 1)
    long = one * MAX_CHARS
    assert HINTS.affinity(NONE, long + other, seed) == HINTS.affinity(NONE, long, seed)
