"""Templates without trust: rendered in a process that ends when they do not."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens import render_process
from prefold.proxy.tokens.render_process import RenderProcess, Unreadable
from prefold.proxy.tokens.render_worker import FAST, REFERENCE
from prefold.proxy.tokens.template_engines import OverBound, TemplateRefusal

PATIENT_S = 30.0
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
IF_HOSTILE = "{% if hostile %}" + ENDLESS + "{% endif %}fine"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_renders_as_told_by_either_library() -> None:
    """Texts cross unchanged, lone surrogates and line ends included; it is one process for all."""
    process = RenderProcess("{{ a }}")
    for text in ("", "größer 👍🏽\r\n\x00", "x" * 300_000, "\ud800"):
        assert process.render(REFERENCE, {"a": text}, within_s=PATIENT_S) == text
    first = process.pid
    assert process.render(FAST, {"a": "b"}, within_s=PATIENT_S) == "b"
    assert process.pid == first
    process.close()
    assert process.pid is None


def test_refusals_and_what_cannot_be_read() -> None:
    """A template that raises, one in no language, and a text that cannot be told."""
    with pytest.raises(TemplateRefusal):
        RenderProcess("{{ raise_exception('no') }}").render(REFERENCE, {}, within_s=PATIENT_S)
    with pytest.raises(Unreadable, match="No filter named"):
        RenderProcess("{{ a | nonsense }}").render(REFERENCE, {}, within_s=PATIENT_S)
    with pytest.raises(Unreadable, match="unknown statement"):
        RenderProcess("{% nonsense %}").render(FAST, {}, within_s=PATIENT_S)
    with pytest.raises(NotEncodable, match="lone surrogates"):
        RenderProcess("{{ a }}").render(FAST, {"a": "\ud800"}, within_s=PATIENT_S)


def test_one_that_takes_too_long_is_killed_and_comes_back_after_a_pause() -> None:
    """While it pauses nothing is started; then it renders what is harmless."""
    clock = Clock()
    process = RenderProcess(IF_HOSTILE, clock)
    assert process.render(REFERENCE, {}, within_s=PATIENT_S) == "fine"
    first = process.pid
    assert first is not None
    with pytest.raises(OverBound, match="takes too long"):
        process.render(REFERENCE, {"hostile": True}, within_s=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    with pytest.raises(OverBound, match="a moment ago"):
        process.render(REFERENCE, {}, within_s=PATIENT_S)
    assert process.pid is None

    clock.now += render_process.PAUSE_S
    assert process.render(REFERENCE, {}, within_s=PATIENT_S) == "fine"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**9 }}",
        "{{ ('x' * 10**8) * n }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(99999) %}{% set ns.a = [ns.a] %}"
        "{% endfor %}{{ ns.a }}",
        "{{ messages | tojson(indent=n * 10**9) }}",
        "{% for i in range(70) %}{{ 'x' * 2**20 * n }}{% endfor %}",
    ],
)
@pytest.mark.parametrize("engine", [REFERENCE, FAST])
def test_memory_and_length_are_bounded(source: str, engine: str) -> None:
    """However it ends there: refused, over a bound, or the process gone."""
    with pytest.raises((OverBound, TemplateRefusal, Unreadable)):
        RenderProcess(source).render(engine, {"n": 1, "messages": [1]}, within_s=PATIENT_S)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ messages.append(1) }}",
        "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    ],
)
def test_the_sandbox_refuses_what_leads_out_of_it(source: str) -> None:
    """And what would change the data: it raises, or there is nothing."""
    with suppress(TemplateRefusal):
        text = RenderProcess(source).render(REFERENCE, {"messages": [{}]}, within_s=PATIENT_S)
        assert text == ""


def test_it_has_neither_our_environment_nor_our_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way out of the sandbox would find no secret there."""
    monkeypatch.setenv("PREFOLD_ROUTING__SECRET", "SENTINEL")
    process = RenderProcess("fine")
    with socket.socket() as ours:
        process.render(REFERENCE, {}, within_s=PATIENT_S)
        shared = os.fstat(ours.fileno()).st_ino
        place = Path(f"/proc/{process.pid}")
        assert b"SENTINEL" not in (place / "environ").read_bytes()
        held = [os.readlink(file) for file in (place / "fd").iterdir()]
    assert f"socket:[{shared}]" not in held
    assert sorted(link.partition(":")[0] for link in held) == ["/dev/null"] * 3 + ["socket"]


def test_it_ends_with_its_owner() -> None:
    """Nobody has to remember it."""
    process = RenderProcess("fine")
    process.render(REFERENCE, {}, within_s=PATIENT_S)
    pid = process.pid
    assert pid is not None
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
