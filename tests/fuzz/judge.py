"""What is wrong with the replies to a case, given what the upstream said. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.answers import Answer, Truth
from tests.fuzz.bodies import BODIES
from tests.fuzz.client import Reply
from tests.fuzz.requests import Case

MAX_ATTEMPTS = 4
"""Two backends, and each once more where a kept connection was closed as the request went out."""


def defects(case: Case, replies: Sequence[Reply], said: Answer | None, attempts: int) -> list[str]:
    """In words, one for each rule that was broken; the same words for the same defect."""
    found = []
    cut = any(not reply.whole for reply in replies)
    if case.well_framed and len(replies) < case.answers and not cut:
        found.append("no answer")
    if attempts > MAX_ATTEMPTS * max(case.answers, 1):
        found.append("too many attempts")
    for reply in replies:
        if reply.status == 500:
            found.append("500")
        if reply.headers.get("x-fuzz", str(case.number)) != str(case.number):
            found.append("the answer of another request")
        if "set-cookie" in reply.headers:
            found.append("a cookie was passed")
        if 300 <= reply.status < 400:
            found.append("a redirect was passed")
    if said is not None and case.path in BODIES and case.answers == 1 and replies:
        found += _lies(case, replies[0], said)
    return found


def _lies(case: Case, reply: Reply, said: Answer) -> list[str]:
    """About the upstream's answer."""
    found = []
    ok = reply.status == 200
    if said.truth is Truth.CUT and ok:
        if reply.whole:
            found.append(f"clean but incomplete ({said.kind})")
        elif b"error" not in reply.body:
            found.append(f"abort without an error event ({said.kind})")
    if said.truth is Truth.SOUND:
        if not ok:
            found.append(f"a sound answer became {reply.status} ({said.kind})")
        elif not reply.whole:
            found.append(f"a sound answer was cut ({said.kind})")
        elif reply.body not in (said.body, said.body_without_usage):
            found.append(f"other bytes ({said.kind})")
        elif not case.usage_asked and reply.body != said.body_without_usage:
            found.append("a usage chunk that nobody asked for")
    return found
