"""The short version of `python -m tests.fuzz`: fixed seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from tests.fuzz.answers import Answer, Truth
from tests.fuzz.campaign import campaign
from tests.fuzz.client import Malformed, Reply, parsed_head
from tests.fuzz.judge import defects
from tests.fuzz.pure import PROPERTIES, run_property
from tests.fuzz.requests import Case, case


@pytest.mark.timeout(180)
def test_generated_requests_and_hostile_streams_break_no_rule(tmp_path: Path) -> None:
    """No unforeseen exception, no hang, no 500, no lie about an answer, no lease left."""
    result = uvloop.run(
        campaign(tmp_path, seed=1, numbers=iter(range(1, 2001)), failures=tmp_path / "failures")
    )
    assert result.broken() == []
    assert result.exchanges >= 2000


@pytest.mark.parametrize("name", PROPERTIES)
def test_pure_parts_hold_for_generated_values(name: str) -> None:
    """Each property of `pure`, with many examples."""
    run_property(name, 1000, seed=1)


def test_a_case_is_the_same_each_time() -> None:
    """Else a failing number would tell nothing."""
    assert [case(3, number) for number in range(200)] == [case(3, number) for number in range(200)]


CASE = Case(number=7, kind="x", pieces=(b"",), path="/v1/chat/completions")
SOUND = Answer(kind="a", steps=(), truth=Truth.SOUND, body=b"ab", body_without_usage=b"a")
CUT = Answer(kind="a", steps=(), truth=Truth.CUT)


def reply(body: bytes = b"a", *, status: int = 200, whole: bool = True, number: int = 7) -> Reply:
    headers = {"x-fuzz": str(number)}
    return Reply(status=status, headers=headers, kept=True, body=body, whole=whole)


@pytest.mark.parametrize(
    ("replies", "said", "found"),
    [
        ([reply()], SOUND, []),
        ([], SOUND, ["no answer"]),
        ([reply(b"ab")], SOUND, ["a usage chunk that nobody asked for"]),
        ([reply(b"b")], SOUND, ["other bytes (a)"]),
        ([reply(whole=False)], SOUND, ["a sound answer was cut (a)"]),
        ([reply(status=502)], SOUND, ["a sound answer became 502 (a)"]),
        ([reply()], CUT, ["clean but incomplete (a)"]),
        ([reply(b"data", whole=False)], CUT, ["abort without an error event (a)"]),
        ([reply(b'data: {"error"', whole=False)], CUT, []),
        ([reply(status=502)], CUT, []),
        ([reply(status=500)], None, ["500"]),
        ([reply(number=8)], None, ["the answer of another request"]),
    ],
)
def test_the_judge_sees_each_kind_of_defect(
    replies: list[Reply], said: Answer | None, found: list[str]
) -> None:
    """A judge that sees nothing would let everything pass."""
    assert defects(CASE, replies, said, attempts=1) == found


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_the_client_refuses_malformed_heads(head: bytes) -> None:
    """What a lenient client would take is a defect of the proxy."""
    with pytest.raises(Malformed):
        parsed_head(head)
