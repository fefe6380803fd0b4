"""Where a text is cut into groups of words that are judged together.

By content and not by position: a group ends with its paragraph, and in long paragraphs after
sentences whose checksum says so. So a paragraph gives the same groups wherever it stands, and a
change is felt only up to the next such sentence.
"""

from __future__ import annotations

import zlib

import numpy as np

from prefold.compression.words import Ints, Words

# Words. A sentence ends its group with a chance of 1 in ONE_IN, so groups have some 8 sentences.
LEAST, MOST, ONE_IN = 40, 320, 8


def groups_of(words: Words) -> Ints:
    """The first word of each group, then the number of words: shape (groups + 1,)."""
    breaks = words.breaks.tolist()
    closing = (words.tails < words.ends).tolist()
    starts, ends = words.starts.tolist(), words.ends.tolist()
    bounds: list[int] = []
    group = sentence = 0
    for word in range(len(words)):
        if breaks[word] or word - group >= MOST:
            bounds.append(word)
            group = sentence = word
        if closing[word]:
            text = words.text[starts[sentence] : ends[word]]
            if word + 1 - group >= LEAST and _is_mark(text):
                breaks_here = word + 1 < len(words) and not breaks[word + 1]
                if breaks_here:
                    bounds.append(word + 1)
                    group = word + 1
            sentence = word + 1
    bounds.append(len(words))
    return np.array(bounds, dtype=np.int64)


def _is_mark(sentence: str) -> bool:
    return zlib.crc32(sentence.encode("utf-8", "surrogatepass")) % ONE_IN == 0
