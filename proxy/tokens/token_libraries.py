"""The two libraries that turn text into token ids, and the proof that they agree.

Both find special tokens in a text and add none of their own.
"""

from itertools import pairwise
from typing import Protocol

import fastokens
import numpy as np
import tokenizers
from numpy.typing import NDArray

from prefold.proxy.tokens.probe_texts import probe_texts

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


class FastokensOrReference:
    """For a vocabulary that lacks bytes: `fastokens` refuses those, the reference drops them."""

    def __init__(self, fast: Fastokens, reference: HuggingFace) -> None:
        self._fast = fast
        self._reference = reference

    def encode_many(self, texts: list[str]) -> list[TokenIds]:
        try:
            return self._fast.encode_many(texts)
        except UnicodeEncodeError:
            raise
        except ValueError:
            return self._reference.encode_many(texts)


def prove_fast(
    tokenizer_json: str, reference: HuggingFace, special_tokens: tuple[str, ...]
) -> tuple[Fastokens | FastokensOrReference | None, str]:
    """`fastokens` if its ids equal the reference's on the probe texts, and the reason.

    Texts that it refuses are left to the reference, as long as they are few.
    """
    try:
        fast = Fastokens(tokenizer_json)
    except (ValueError, RuntimeError, TypeError) as error:
        return None, f"fastokens cannot read it: {error}"
    texts = probe_texts(special_tokens)
    refused = differing = 0
    for text, expected in zip(texts, reference.encode_many(texts), strict=True):
        try:
            differing += not np.array_equal(fast.encode_many([text])[0], expected)
        except ValueError:
            refused += 1
    if differing:
        return None, f"fastokens differs on {differing} of {len(texts)} probe texts"
    if refused > len(texts) / 2:
        return None, f"fastokens refuses {refused} of {len(texts)} probe texts"
    if refused:
        reason = (
            f"identical ids on {len(texts) - refused} probe texts, {refused} left to tokenizers"
        )
        return FastokensOrReference(fast, reference), reason
    return fast, f"identical ids on {len(texts)} probe texts"
