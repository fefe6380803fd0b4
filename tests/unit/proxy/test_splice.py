"""Changing one member of a JSON object and not a byte more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.splice import members, replace_member

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(["model", "a", "b", "é", '"q"']), VALUES, max_size=5)


@given(OBJECTS, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_only_the_member_changes(value: dict[str, object], ascii_only: bool, indent: int) -> None:
    """The rest is the same bytes, whatever the layout; a member that is not there is added."""
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    changed = replace_member(raw, "model", '"new"')

    assert json.loads(changed) == {**value, "model": "new"}
    if "model" in value:
        found = next(m for m in members(raw.decode()) if m.key == "model")
        text = raw.decode()
        assert changed.decode() == text[: found.start] + '"new"' + text[found.end :]
    else:
        brace = raw.index(b"{") + 1
        assert changed.endswith(raw[brace:])


def test_every_duplicate_is_replaced() -> None:
    """Whichever of them an engine reads, it reads the new value."""
    raw = b' {"model" : 1, "big":12345678901234567890123, "model":[2] } '

    assert (
        replace_member(raw, "model", '"m"')
        == b' {"model" : "m", "big":12345678901234567890123, "model":"m" } '
    )


@pytest.mark.parametrize("raw", [b"[]", b"", b"{", b'{"a"}', b'{"a":1 "b":2}', b'{"a":1,}x'])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    """Never a half-changed body."""
    with pytest.raises(ValueError, match=r"."):
        replace_member(raw, "a", "1")
