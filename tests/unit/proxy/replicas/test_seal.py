"""What is sealed for Redis: read only under the same secret, and never changed unseen."""

import pytest

from prefold.proxy.replicas.messages import Stream
from prefold.proxy.replicas.seal import HEAD, Seal, Unreadable

SECRET = b"a secret of some length"
PLAIN = b"placed: 0123456789" * 10


def test_who_has_the_secret_reads_what_another_sealed() -> None:
    """With its source and its number."""
    one, other = Seal(SECRET), Seal(SECRET)

    assert other.open("deltas", one.close("deltas", 7, PLAIN)) == (one.source, 7, PLAIN)


def test_nothing_of_the_content_is_to_be_seen() -> None:
    """Equal contents do not even look alike."""
    seal = Seal(SECRET)
    first, second = (seal.close("deltas", number, PLAIN) for number in (1, 2))

    assert b"placed" not in first
    assert b"0123" not in first
    assert first[HEAD.size :] != second[HEAD.size :]


@pytest.mark.parametrize("at", [0, HEAD.size - 1, HEAD.size, -1])
def test_a_changed_byte_makes_it_unreadable(at: int) -> None:
    """Of its head as well."""
    seal = Seal(SECRET)
    entry = bytearray(seal.close("deltas", 1, PLAIN))
    entry[at] ^= 1

    with pytest.raises(Unreadable):
        seal.open("deltas", bytes(entry))


def test_other_secrets_other_streams_and_pieces_are_unreadable() -> None:
    """An entry means something in its own stream only."""
    entry = Seal(SECRET).close("deltas", 1, PLAIN)

    for seal, stream, content in (
        (Seal(b"another secret"), "deltas", entry),
        (Seal(SECRET), "pins", entry),
        (Seal(SECRET), "deltas", entry[:-1]),
        (Seal(SECRET), "deltas", entry[:5]),
    ):
        with pytest.raises(Unreadable):
            seal.open(stream, content)


def test_streams_have_nonces_of_their_own() -> None:
    """Their first four letters are a part of it."""
    assert len({stream[:4] for stream in Stream}) == len(Stream)


def test_digests_depend_on_the_secret_and_on_each_of_what_they_name() -> None:
    """Where a tenant ends and an id begins is a part of it."""
    one, again, other = Seal(SECRET), Seal(SECRET), Seal(b"another secret")

    assert one.backend("http://a:1", None) == again.backend("http://a:1", None)
    assert one.response("t", "r") == again.response("t", "r")
    assert (
        len(
            {
                one.backend("http://a:1", None),
                one.backend("http://a:1", 0),
                one.backend("http://a:1", 1),
                one.backend("http://a:2", None),
                other.backend("http://a:1", None),
            }
        )
        == 5
    )
    named = [("tenant", "id"), ("tenanti", "d"), ("", "tenantid")]
    digests = {seal.response(*pair) for seal in (one, other) for pair in named}
    assert len(digests) == 6


def test_a_secret_may_be_of_any_length() -> None:
    """BLAKE2b's own keys end at 64 bytes."""
    long = Seal(b"x" * 1000)

    assert Seal(b"x" * 1000).open("pins", long.close("pins", 1, PLAIN))[2] == PLAIN
    assert Seal(b"x" * 999).response("", "r") != long.response("", "r")
