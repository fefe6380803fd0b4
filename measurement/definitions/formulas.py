"""The formulas that tools share or differ by: of a view, in seconds. An empty list: not defined."""

from __future__ import annotations

from itertools import pairwise

from prefold.measurement.definitions.profile import Samples, View
from prefold.measurement.definitions.timeline import Kind


def first(view: View) -> Samples:
    return _known(view.first_s)


def first_of_two(view: View) -> Samples:
    """Only of answers of two tokens and more."""
    return _known(view.first_s) if (view.output_tokens or 0) >= 2 else ()


def first_output(view: View) -> Samples:
    """The first that is no reasoning."""
    for chunk in view.accepted:
        if chunk.kind is not Kind.REASONING:
            return (chunk.t - view.timeline.sent,)
    return ()


def second_after_first(view: View) -> Samples:
    return view.gaps_s[:1]


def last(view: View) -> Samples:
    return _known(view.last_s)


def body(view: View) -> Samples:
    return (view.body_s,)


def gaps(view: View) -> Samples:
    return view.gaps_s


def mean_gap(view: View) -> Samples:
    between = view.gaps_s
    return (sum(between) / len(between),) if between else ()


def largest_gap(view: View) -> Samples:
    return (max(view.gaps_s),) if len(view.accepted) > 1 else ()


def token_gaps(view: View) -> Samples:
    """Every token has its chunk's time, so those of one chunk are zero apart. Where chunks do not
    say how many tokens are in them, each has one."""
    times = [chunk.t for chunk in view.accepted for _ in range(chunk.tokens or 1)]
    return [after - before for before, after in pairwise(times)]


def decode_to_last(view: View) -> Samples:
    """(last - first) / (N - 1)."""
    return _after_first(view, view.last_s)


def decode_to_last_ns(view: View) -> Samples:
    """The same in whole nanoseconds."""
    return [round(seconds, 9) for seconds in decode_to_last(view)]


def decode_to_end(view: View) -> Samples:
    """(end of the body - first) / (N - 1)."""
    return _after_first(view, view.body_s)


def last_per_token(view: View) -> Samples:
    """(last - sent) / N."""
    return _each(view.last_s, view.output_tokens)


def body_per_token(view: View) -> Samples:
    """(end of the body - sent) / N."""
    return _each(view.body_s, view.output_tokens)


def last_per_data_chunk(view: View) -> Samples:
    """(last content - sent) / number of SSE data events, whatever is in them."""
    counted = [chunk for chunk in view.timeline.chunks if chunk.kind not in (Kind.DONE, Kind.USAGE)]
    return _each(view.last_s, len(counted))


def decode_steps(view: View) -> int:
    """A weight: N - 1."""
    return max((view.output_tokens or 0) - 1, 0)


def decode_tps(view: View) -> Samples:
    """(N - 1) / (last - first)."""
    return _inverse(decode_to_last(view))


def tps_to_last(view: View) -> Samples:
    """N / (last - sent)."""
    return _inverse(last_per_token(view))


def tps_to_end(view: View) -> Samples:
    """N / (end of the body - sent)."""
    return _inverse(body_per_token(view))


def prompt_tps(view: View) -> Samples:
    """Prompt tokens / TTFT."""
    return _inverse(_each(view.first_s, view.prompt_tokens))


def prefill_tps(view: View) -> Samples:
    """Prompt tokens that were not cached / TTFT; where the engine reports what was."""
    usage = view.timeline.usage
    if usage is None or usage.prompt_tokens is None or usage.cached is None:
        return ()
    return _inverse(_each(view.first_s, usage.prompt_tokens - usage.cached))


def _known(seconds: float | None) -> Samples:
    return () if seconds is None else (seconds,)


def _after_first(view: View, until: float | None) -> Samples:
    steps = decode_steps(view)
    if view.first_s is None or until is None or not steps:
        return ()
    return ((until - view.first_s) / steps,)


def _each(seconds: float | None, count: int | None) -> Samples:
    return (seconds / count,) if seconds is not None and count and count > 0 else ()


def _inverse(samples: Samples) -> Samples:
    return [1 / seconds for seconds in samples if seconds > 0]
