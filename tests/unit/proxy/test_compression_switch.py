"""Who decides whether a request is compressed."""

from __future__ import annotations

import pytest

from prefold.proxy.compression.switch import HEADER, Switch, Switches
from prefold.proxy.errors import BadRequest

SWITCHES = Switches(
    default=Switch.AUTO,
    models={"never": Switch.OFF, "always": Switch.ON},
    by_header=False,
    forbidden=frozenset(("forbidden",)),
)


def decided(model: str = "m", arm: str = "", header: str = "", tenant: str = "") -> Switch | None:
    return SWITCHES.of(model, arm, {HEADER: header} if header else {}, tenant)


def test_the_nearer_one_decides() -> None:
    """Settings, then the model, then the arm, then the request itself."""
    assert decided() is Switch.AUTO
    assert decided("always") is Switch.ON
    assert decided("always", arm="shadow") is Switch.SHADOW
    assert decided("always", arm="shadow", header=" Auto ") is Switch.AUTO
    assert decided("always", header="off") is Switch.OFF


def test_where_it_is_off_a_request_cannot_ask_for_it() -> None:
    """Unless the settings allow that."""
    assert decided("never") is None
    assert decided("never", header="on") is None
    assert decided(arm="off", header="on") is None
    allowed = Switches(default=Switch.OFF, models={}, by_header=True, forbidden=())
    assert allowed.of("m", "", {HEADER: "on"}, "") is Switch.ON
    assert allowed.of("m", "", {}, "") is None


def test_a_key_may_be_left_out_for_good() -> None:
    """Whatever else says."""
    for model, arm, header in (("always", "", ""), ("m", "on", ""), ("m", "", "on")):
        assert decided(model, arm, header, tenant="forbidden") is None


def test_an_unknown_mode_is_a_bad_request() -> None:
    """It names the header and the modes."""
    with pytest.raises(BadRequest, match=rf"{HEADER}: expected one of off, shadow, on, auto"):
        decided(header="half")
