from __future__ import annotations

from prefold.backends.line import Line


def test_the_first_of_a_line_is_at_work() -> None:
    """At the rate that is known, and never beyond its end: its first token would be here."""
    line = Line()
    first, second = object(), object()
    line.join(first, 1000, 10.0)
    line.join(second, 300, 10.5)

    assert line.total == 1300
    assert line.done_tokens(400.0, 11.0) == 400
    assert line.done_tokens(400.0, 60.0) == 1000


def test_the_next_one_begins_where_one_ends() -> None:
    """Whichever of them it was."""
    line = Line()
    first, second = object(), object()
    line.join(first, 1000, 10.0)
    line.join(second, 300, 10.5)
    line.leave(first, 13.0)

    assert line.total == 300
    assert line.done_tokens(100.0, 14.0) == 100
    line.leave(first, 20.0)
    assert line.done_tokens(100.0, 14.0) == 100


def test_what_needs_no_computing_does_not_stand_in_line() -> None:
    """A prompt that is all cached is nobody's work."""
    line, cached, late = Line(), object(), object()
    line.join(cached, 0, 1.0)
    line.join(late, 50, 9.0)
    line.leave(cached, 9.5)

    assert line.done_tokens(10.0, 10.0) == 10
    line.leave(late, 11.0)
    assert (line.total, line.done_tokens(10.0, 99.0)) == (0, 0)
