"""What the bytes of a JSON document show."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.json_shape import (
    may_exceed,
    may_repeat_model,
    text_exceeds,
    value_exceeds,
)


def test_an_unterminated_string_is_scanned_once() -> None:
    """From each of its quotes it would take minutes."""
    raw = b'{"a":[' + b"{}," * 70 + b'"' + b'\\"' * 1_000_000

    assert not text_exceeds(raw, 64)


@given(
    st.recursive(
        st.one_of(st.integers(), st.text(alphabet='[]{}"\\a')),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=40,
    ),
    st.integers(0, 8),
)
def test_depth_is_counted_exactly(value: object, limit: int) -> None:
    """Brackets inside strings, escaped quotes included, are not nesting."""

    def depth(value: object) -> int:
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(inner, str | int) or not hasattr(inner, "__iter__"):
            return 0
        return 1 + max(map(depth, inner), default=0)

    raw, deeper = json.dumps(value).encode(), depth(value) > limit
    assert text_exceeds(raw, limit) == deeper
    assert may_exceed(raw, limit) >= deeper
    if isinstance(value, dict | list):
        assert value_exceeds(value, limit) == deeper


@pytest.mark.parametrize(
    ("raw", "repeated"),
    [
        (b'{"model":"a","model":"b"}', True),
        (b'{"model":"a","mod\\u0065l":"b"}', True),
        (b'{"\\u006d\\u006F\\u0064\\u0065\\u006c":"a","model":"b"}', True),
        (b'{"model":"model"}', True),  # to be looked at closely
        (b'{"model":"a","messages":[{"content":"my \\"model\\" is \\u006dodel"}]}', False),
        (b'{"model":"a","n":"\\u006dode"}', False),
        (b"{}", False),
    ],
)
def test_two_strings_that_read_model_are_found(raw: bytes, repeated: bool) -> None:
    """However they are written; texts that speak of models are none."""
    assert may_repeat_model(raw, None) is repeated


@given(
    st.dictionaries(st.sampled_from(["model", "\u00e9", "n", "messages"]), st.text(max_size=3)),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_members_that_make_up_the_body_spare_a_look(
    members: dict[str, str], twice: bool, separators: tuple[str, str]
) -> None:
    """Never where a key was dropped for another one."""
    raw = json.dumps(members, separators=separators, ensure_ascii=False)
    if twice:
        raw = raw[:1] + '"model":"x"' + ("," if members else "") + raw[1:]
    twice = twice and "model" in members
    seen = msgspec.json.decode(raw.encode(), type=dict[str, msgspec.Raw])

    assert may_repeat_model(raw.encode(), seen) or not twice
    if not twice and members:
        assert not may_repeat_model(raw.encode(), seen)
