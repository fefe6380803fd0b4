"""From credentials to a tenant."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from prefold.proxy.errors import Unauthorized
from prefold.proxy.keys import OPEN, KeyLimits, KeyRing

KEYS = {"alpha-1": "a", "alpha-2": "a", "beta-1": "b"}
HEADERS = ("Authorization", "x-api-key", "api-key")


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


RING = KeyRing.of([(tenant, digest(key), 0.0, 0) for key, tenant in KEYS.items()])


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def carried(place: str, key: str) -> tuple[str, str]:
    return (place, f"Bearer {key}" if place == "Authorization" else key)


@pytest.mark.parametrize("place", HEADERS)
def test_every_place_is_checked_alike(place: str) -> None:
    """The same key in any of them is the same tenant, and an unknown one is refused in each."""
    assert RING.authenticate(headers(carried(place, "alpha-2"))).name == "a"
    name, value = carried(place, "beta-1")
    assert RING.authenticate(headers((name.upper(), value))).name == "b"
    with pytest.raises(Unauthorized):
        RING.authenticate(headers(carried(place, "alpha")))


@pytest.mark.parametrize(
    "value", ["", "alpha-1", "Basic alpha-1", "Bearer", "Bearer ", "Bearer alpha-1 beta-1", "é"]
)
def test_a_malformed_authorization_is_refused(value: str) -> None:
    """Also beside a good key elsewhere: two readers of such a request might differ."""
    with pytest.raises(Unauthorized):
        RING.authenticate(headers(("Authorization", value)))
    with pytest.raises(Unauthorized):
        RING.authenticate(headers(("Authorization", value), ("api-key", "alpha-1")))


def test_without_keys_everybody_is_one_tenant() -> None:
    """Whatever they send: an OpenAI client always sends some key."""
    ring = KeyRing.of([])

    assert ring.authenticate(headers()) is OPEN
    assert ring.authenticate(headers(carried("api-key", "x"), carried("x-api-key", "y"))) is OPEN


def test_limits_are_those_of_the_key() -> None:
    """Two keys of one tenant may have different ones, and are told apart by their digests."""
    ring = KeyRing.of([("a", digest("k"), 60.0, 2), ("a", digest("l").upper(), 0.0, 0)])
    first = ring.authenticate(headers(carried("api-key", "k")))
    second = ring.authenticate(headers(carried("api-key", "l")))

    assert first.limits == KeyLimits(requests_per_minute=60.0, parallel=2)
    assert second.limits == KeyLimits()
    assert first.key_digest != second.key_digest


def test_neither_keys_nor_digests_show() -> None:
    """In no error, and in no printed tenant."""
    tenant = RING.authenticate(headers(carried("api-key", "alpha-1")))
    assert digest("alpha-1") not in repr(tenant)
    assert repr(sha256(b"alpha-1").digest()) not in repr(tenant)
    with pytest.raises(Unauthorized) as error:
        RING.authenticate(headers(carried("api-key", "SENTINEL")))
    assert b"SENTINEL" not in error.value.body()


def test_the_answer_is_what_clients_know() -> None:
    """OpenAI's error object, and the challenge that RFC 9110 asks for."""
    with pytest.raises(Unauthorized) as error:
        RING.authenticate(headers())
    assert (error.value.status, error.value.kind, error.value.code) == (
        401,
        "authentication_error",
        "invalid_api_key",
    )
    assert error.value.headers == {"WWW-Authenticate": "Bearer"}


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 33])
def test_what_is_no_digest_is_refused(text: str) -> None:
    """A key pasted where its digest belongs would otherwise lock its owner out, silently."""
    with pytest.raises(ValueError, match="hex"):
        KeyRing.of([("a", text, 0.0, 0)])


def naive(pairs: list[tuple[str, str]]) -> str | None:
    """The tenant of a request whose credentials are all well formed; None: refused."""
    different = {value.removeprefix("Bearer ") for _, value in pairs}
    return KEYS.get(different.pop()) if len(different) == 1 else None


@given(
    st.lists(
        st.tuples(st.sampled_from(HEADERS), st.sampled_from([*KEYS, "unknown", "alpha-1x"])),
        max_size=5,
    )
)
def test_one_known_credential_and_no_other(places: list[tuple[str, str]]) -> None:
    """Any number of places may carry it, repeated headers too; two different ones are refused even
    if both are known."""
    pairs = [carried(place, key) for place, key in places]
    expected = naive(pairs)
    if expected is None:
        with pytest.raises(Unauthorized):
            RING.authenticate(headers(*pairs))
    else:
        assert RING.authenticate(headers(*pairs)).name == expected
