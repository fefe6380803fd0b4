"""What `make check-aiperf` calls equal."""

from __future__ import annotations

from prefold.measurement.definitions.timeline import Chunk, Kind, Timeline, Usage
from tests.aiperf.compare import compare


def timeline(ttft_s: float) -> Timeline:
    """Three tokens, 100 ms apart."""
    chunks = tuple(Chunk(ttft_s + number / 10, Kind.CONTENT) for number in range(3))
    return Timeline(sent=0.0, chunks=chunks, usage=Usage(50, 3))


def told(ttft_ms: float, tokens: int) -> dict[str, float]:
    return {
        "time_to_first_token": ttft_ms,
        "time_to_second_token": 100.0,
        "request_latency": ttft_ms + 200,
        "inter_token_latency": 100.0,
        "output_sequence_length": tokens,
    }


def test_the_way_to_the_client_is_no_difference() -> None:
    """A few ms more at the client's clock."""
    ours = {"a": timeline(0.5), "b": timeline(0.7), "unknown to aiperf": timeline(9.0)}
    found = compare(ours, {"a": told(504, 3), "b": told(706, 3)})

    assert all(one.agrees for one in found), found
    assert [len(one.ours) for one in found] == [2] * 5


def test_another_definition_is_one() -> None:
    """A TTFT that is a tenth of a second off, a token that one side did not count."""
    found = {one.name: one.agrees for one in compare({"a": timeline(0.5)}, {"a": told(600, 4)})}

    assert not found["time_to_first_token"]
    assert not found["output_sequence_length"]
    assert found["time_to_second_token"]


def test_nothing_compared_is_no_agreement() -> None:
    """A run whose requests could not be matched shows nothing."""
    assert not any(one.agrees for one in compare({"a": timeline(0.5)}, {"b": told(500, 3)}))
