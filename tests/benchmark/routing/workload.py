"""Prompts in the order in which they are sent, the same for every arm, and when each is sent.

Knows nothing of engines and proxies. A workload is texts: what reads one makes a chat of it, with
the whole text as one user message, as flattened agent prompts are sent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefold.proxy.replay.prompts import WORDS


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    about: str
    """Where the texts come from, and which of them were taken."""
    prompts: Sequence[Prompt]


def prose(seed: str, words: int) -> str:
    """The same for the same seed; each word is one token or little more in common vocabularies."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def synthetic(
    *, seed: int, requests: int, at_work: int, turns: int, system_words: int, turn_words: int
) -> Workload:
    """Conversations that grow by a turn of `turn_words` with each request, `at_work` of them at any
    time. Four system prompts are shared among them."""
    sessions = []
    for number in range(-(-requests // turns) + at_work):
        texts = [prose(f"{seed} system {number % 4}", system_words)]
        for turn in range(turns):
            texts.append(f"{texts[-1]}\n{prose(f'{seed} {number} {turn}', turn_words)}")
        sessions.append(texts[1:])
    return Workload(
        "synthetic",
        f"{turns} turns of {turn_words} words each after one of 4 system prompts of {system_words}",
        [Prompt(text, 8) for text in interleaved(sessions, at_work, requests, seed)],
    )


def interleaved(
    sessions: Sequence[Sequence[str]], at_work: int, requests: int, seed: int
) -> list[str]:
    """The first `requests` prompts if `at_work` sessions run at any time, each step being that of a
    random one of these, and the next session begins where one has ended. Fewer if there are no
    more sessions."""
    rng = random.Random(f"interleaved {seed}")
    waiting = iter(sessions)
    running: list[Iterator[str]] = []
    taken: list[str] = []
    while len(taken) < requests:
        while len(running) < at_work and (session := next(waiting, None)) is not None:
            running.append(iter(session))
        if not running:
            break
        place = rng.randrange(len(running))
        prompt = next(running[place], None)
        if prompt is None:
            del running[place]
        else:
            taken.append(prompt)
    return taken


def arrivals(requests: int, rate: float, seed: int) -> list[float]:
    """Seconds from the start: a Poisson process of `rate` requests per second, the first at 0."""
    rng = random.Random(f"arrivals {seed}")
    times = [0.0]
    while len(times) < requests:
        times.append(times[-1] + rng.expovariate(rate))
    return times[:requests]
