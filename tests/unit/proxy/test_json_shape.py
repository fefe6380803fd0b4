"""What the bytes of a JSON document show."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.json_shape import depth_exceeds, may_repeat_model, pieces_of


def too_deep(raw: bytes, limit: int) -> bool:
    return depth_exceeds(raw, pieces_of(raw), limit)


def test_an_unterminated_string_is_scanned_once() -> None:
    """From each of its quotes it would take minutes."""
    raw = b'{"a":[' + b"{}," * 70 + b'"' + b'\\"' * 1_000_000

    assert not too_deep(raw, 64)


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

    assert too_deep(json.dumps(value).encode(), limit) == (depth(value) > limit)


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
    assert may_repeat_model(pieces_of(raw)) is repeated
