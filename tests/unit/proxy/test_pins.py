"""Where a response was made."""

from prefold.proxy.pins import Pins


def test_an_id_belongs_to_its_tenant() -> None:
    """Another tenant's is unknown."""
    pins = Pins()
    pins.learn("a", "resp_1", "b0")

    assert pins.find("a", "resp_1") == "b0"
    assert pins.find("b", "resp_1") is None


def test_the_least_recently_used_is_forgotten() -> None:
    """Bounded, whatever clients do."""
    pins = Pins(2)
    for name in ("r1", "r2"):
        pins.learn("", name, "b0")
    pins.find("", "r1")
    pins.learn("", "r3", "b0")

    assert [pins.find("", name) for name in ("r1", "r2", "r3")] == ["b0", None, "b0"]


def test_an_id_of_absurd_length_is_not_kept() -> None:
    """Memory is bounded by count, so an entry must be small."""
    pins = Pins()
    pins.learn("", "r" * 10_000, "b0")

    assert len(pins) == 0
