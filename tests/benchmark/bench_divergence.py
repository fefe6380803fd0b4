"""What it costs to tell where prompts part: CPU time of the event loop for each request.

    python tests/benchmark/bench_divergence.py [--rounds 5]

At share 0 prompts are only remembered, at 1 each is compared; 0.125 is the default. The best of
some rounds, in microseconds. Token ids are given: encoding is not in it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import msgspec
import numpy as np

from prefold.backends.backend import Mode
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.divergence import Divergences
from prefold.proxy.openai import ChatBody
from prefold.proxy.prompt import Prompt

RULE = " Answer briefly, name your sources, and never speak of what is not in the documents."
SHARES = (0.0, 0.125, 1.0)
PROMPTS = 64
REQUESTS = 1000

Make = Callable[[int], ChatBody]


def chat(system: str, *turns: str) -> ChatBody:
    messages = [{"role": "system", "content": system}]
    messages += [
        {"role": ("user", "assistant")[at % 2], "content": turn} for at, turn in enumerate(turns)
    ]
    # As parsed: no two prompts share an object.
    return ChatBody(messages=msgspec.json.decode(msgspec.json.encode(messages)))


def stamped(rules: int) -> Make:
    return lambda number: chat(f"Now: 2026-05-01 10:{number % 60:02}.{RULE * rules}", "hi")


def question(rules: int) -> Make:
    return lambda number: chat(RULE * rules, f"{'abcdefgh'[number % 8]}{number} what is it?")


def goes_on(number: int) -> ChatBody:
    return chat(RULE * 40, *(f"turn {turn}{RULE}" for turn in range(40)))


def reordered(number: int) -> ChatBody:
    documents = [f"document {name}{RULE * 9}" for name in range(20)]
    return chat(RULE * 10, "\n\n".join(random.Random(number).sample(documents, 20)))


CASES: tuple[tuple[str, Make], ...] = (
    ("a timestamp, then 2 KiB", stamped(24)),
    ("a timestamp, then 34 KiB", stamped(400)),
    ("34 KiB in common, then a question", question(400)),
    ("249 KiB in common, then a question", question(3_000)),
    ("a conversation of 40 turns that goes on", goes_on),
    ("16 KiB of documents in another order", reordered),
)


def prompt(tokens: int) -> Prompt:
    """Its ids differ from others' at the twentieth."""
    ids = np.zeros(tokens, dtype=np.uint32)
    ids[20] = random.randrange(1, 2**31)
    return Prompt({Mode.FEEDBACK: Prefix.of_tokens(ids, 1, None)}, tokens)


def measured_us(make: Make, share: float, rounds: int) -> float:
    divergences = Divergences(b"secret", share)
    bodies = [make(number) for number in range(PROMPTS)]
    sizes = [len(msgspec.json.encode(body.messages)) for body in bodies]
    given = list(zip(bodies, sizes, [prompt(size // 4) for size in sizes], strict=True))
    best = float("inf")
    for _ in range(rounds + 1):
        begun = time.process_time()
        for number in range(REQUESTS):
            body, size, ids = given[number % PROMPTS]
            divergences.look(body, size, 1, ids)
        best = min(best, (time.process_time() - begun) / REQUESTS)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'us a request, by share of those compared':42}", *(f"{one:>8}" for one in SHARES))
    for name, make in CASES:
        found = [measured_us(make, share, rounds) for share in SHARES]
        print(f"{name:42}", *(f"{one:8.1f}" for one in found))


if __name__ == "__main__":
    main()
