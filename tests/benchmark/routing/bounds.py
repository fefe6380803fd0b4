"""How much of a workload's prompts any placement could reuse: one cache that sees all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefold.prefix_index.prefix import Prefix
from prefold.proxy.simulate.engine import BlockCache
from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.benchmark.routing.workload import Prompt

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """Shares of the prompt tokens, with what the chat template adds. Answers, which engines keep in
    their caches too, are not counted."""

    pooled: float | None
    """Of one LRU cache as large as the fleet's together; None where engines have slots."""
    infinite: float
    """Of a cache without bound."""


def bounds_of(prompts: Sequence[Prompt], model: Path, pooled_tokens: int | None) -> Bounds:
    loaded = load_tokenizer(str(model))
    assert loaded.template is not None
    chats = [[{"role": "user", "content": prompt.text}] for prompt in prompts]
    texts = [loaded.template.render(chat, None, {}) for chat in chats]
    prefixes = [Prefix.of_tokens(ids, 0) for ids in loaded.tokenizer.encode_many(texts)]
    pooled = None if pooled_tokens is None else _share(prefixes, BlockCache(pooled_tokens // BLOCK))
    return Bounds(pooled, _share(prefixes, BlockCache(None)))


def _share(prefixes: Sequence[Prefix], cache: BlockCache) -> float:
    reused = 0
    for prefix in prefixes:
        keys = prefix.chain(BLOCK)
        # The last token of a prompt is always computed.
        reused += min(cache.held(keys), (prefix.length - 1) // BLOCK) * BLOCK
        cache.touch(keys)
    return reused / sum(prefix.length for prefix in prefixes)
