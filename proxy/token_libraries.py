"""The two libraries that turn text into token ids, and the proof that they agree.

Both find special tokens in a text and add none of their own.
"""

from itertools import pairwise
from typing import Protocol

import fastokens
import numpy as np
import tokenizers
from numpy.typing import NDArray

from prefold.proxy.probe_texts import probe_texts

TokenIds = NDArray[np.uint32]


class TokenLibrary(Protocol):
    """Encodes each text on its own; raises `ValueError` where it cannot."""

    def encode_many(self, texts: list[str]) -> list[TokenIds]: ...


class HuggingFace:
    """The reference. `encode_batch_fast` counts no offsets and, unlike `encode`, frees the GIL."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode_many(self, texts: list[str]) -> list[TokenIds]:
        for text in texts:
            text.encode()  # a lone surrogate: the library's own error is a TypeError about types
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]


class Fastokens:
    """Fifty times faster; the ids come back in one buffer, not as a Python integer each."""

    def __init__(self, tokenizer_json: str) -> None:
        self._tokenizer = fastokens.Tokenizer.from_json_str(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode_many(self, texts: list[str]) -> list[TokenIds]:
        ids, offsets = self._tokenizer.encode_batch_flat(texts)
        whole = np.frombuffer(ids, dtype="<u4")
        if len(texts) == 1:
            return [whole]
        bounds = np.frombuffer(offsets, dtype="<u8").tolist()
        # Copies, so that ids kept for long do not keep those of the whole batch alive.
        return [whole[start:end].copy() for start, end in pairwise(bounds)]


def prove_fast(
    tokenizer_json: str, reference: HuggingFace, special_tokens: tuple[str, ...]
) -> tuple[Fastokens | None, str]:
    """`fastokens` if its ids equal the reference's on every probe text, and the reason."""
    try:
        fast = Fastokens(tokenizer_json)
    except (ValueError, RuntimeError, TypeError) as error:
        return None, f"fastokens cannot read it: {error}"
    texts = probe_texts(special_tokens)
    try:
        encoded = fast.encode_many(texts)
    except ValueError as error:
        return None, f"fastokens cannot encode a probe text: {error}"
    pairs = zip(encoded, reference.encode_many(texts), strict=True)
    differing = sum(not np.array_equal(ours, theirs) for ours, theirs in pairs)
    if differing:
        return None, f"fastokens differs on {differing} of {len(texts)} probe texts"
    return fast, f"fastokens gave identical ids on {len(texts)} probe texts"
