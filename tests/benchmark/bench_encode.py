"""CPU cost of turning a chat into token ids, with and without the memo.

    python tests/benchmark/bench_encode.py [--tokenizer PATH_OR_HUB_ID] [--rounds 15]

Each measured chat repeats an earlier conversation and ends in a new user message, as the next turn
of a dialogue does. CPU time of the whole process, threads included; medians. No engine is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time

from prefold.backends.embedded import model_path
from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import LoadedTokenizer, load_tokenizer

SYLLABLES = (
    "an",
    "be",
    "ca",
    "do",
    "en",
    "fi",
    "go",
    "hu",
    "in",
    "ja",
    "ke",
    "lo",
    "mi",
    "ver",
    "wi",
)
TOKENS_PER_MESSAGE = 200


def words(rng: random.Random, count: int) -> str:
    """Made-up prose: words of one to three syllables, numbers and full stops among them."""
    drawn = []
    for _ in range(count):
        word = "".join(rng.choices(SYLLABLES, k=rng.randint(1, 3)))
        drawn.append(rng.choices([word, str(rng.randint(0, 999)), word + "."], [12, 1, 2])[0])
    return " ".join(drawn)


def conversation(loaded: LoadedTokenizer, tokens: int) -> list[dict[str, str]]:
    """Alternating messages that come to about `tokens` tokens together."""
    rng = random.Random(tokens)
    per_word = loaded.tokenizer.encode(words(rng, 2000)).size / 2000
    size = round(TOKENS_PER_MESSAGE / per_word)
    count = max(2, round(tokens / TOKENS_PER_MESSAGE)) // 2 * 2
    return [
        {"role": ("user", "assistant")[number % 2], "content": words(rng, size)}
        for number in range(count)
    ]


async def median_cost(loaded: LoadedTokenizer, tokens: int, memo_bytes: int, rounds: int) -> float:
    """CPU microseconds to encode a chat of about `tokens` tokens whose last message is new."""
    encoder = Encoder(
        loaded.tokenizer, loaded.template, memo_bytes=memo_bytes, inline_chars=1 << 30
    )
    history, rng = conversation(loaded, tokens), random.Random(0)
    costs = []
    try:
        for _ in range(rounds + 1):  # the first one fills the memo
            messages = [*history, {"role": "user", "content": words(rng, 40)}]
            started = time.process_time_ns()
            await encoder.encode_chat(messages, None, {})
            costs.append((time.process_time_ns() - started) / 1000)
    finally:
        encoder.close()
    return statistics.median(costs[1:])


async def main(source: str, rounds: int) -> None:
    print(f"{'tokens':>7} {'library':>10} {'whole prompt':>14} {'with memo':>11} {'ratio':>7}")
    for library in ("fastokens", "tokenizers"):
        loaded = load_tokenizer(source, try_fast=library == "fastokens")
        if loaded.tokenizer.fast != (library == "fastokens"):
            print(f"fastokens is not used: {loaded.tokenizer.describe()}")
            continue
        for tokens in (2_000, 8_000, 32_000):
            whole = await median_cost(loaded, tokens, 0, rounds)
            memo = await median_cost(loaded, tokens, 1 << 28, rounds)
            print(
                f"{tokens:>7} {library:>10} {whole:>11.0f} us {memo:>8.0f} us {whole / memo:>6.1f}x"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", help="default: the embedded model, if it was fetched")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    place = arguments.tokenizer or model_path()
    if place is None:
        sys.exit("the embedded model is not here; name a tokenizer with --tokenizer")
    asyncio.run(main(str(place), arguments.rounds))
