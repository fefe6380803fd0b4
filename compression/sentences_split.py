"""A text's words as sentences, and sentences in groups that are judged together. Pure.

Rather too few ends than too many: half a sentence that is cut leaves a wrong one, two sentences
that are taken for one cost a little of the rate.
"""

from __future__ import annotations

import re
import zlib

import numpy as np

from prefold.compression.words import Ints, Words

# Of Chinese and Japanese: no space follows them. The others need one.
FULL_WIDTH = "。！？｡"
CLOSING = "」』）】〉》”’)\"'"
ABBREVIATIONS = """mr mrs ms dr prof st vs etc fig figs eq al inc ltd corp jr sr approx dept gen gov
    sen rep rev sgt col capt jan feb apr jun jul aug sep sept oct nov dec vol pp ed eds cf bzw ca
    usw nr str evtl ggf vgl"""
NO_END = frozenset(ABBREVIATIONS.split())
INITIALS = re.compile(r"(?:[A-Za-z]\.)*[A-Za-z]")  # also of "e.g."
ITEM = re.compile(r"(?:[-*+•–·]|\(?(?:\d{1,3}|[a-z])[.)])$")  # what begins a line of a list
LEAST, MOST, ONE_IN = 8, 40, 8  # sentences of a group; its chance to end after one


def sentences_of(words: Words) -> Ints:
    """The first word of each sentence, then the number of words: shape (sentences + 1,)."""
    breaks = words.breaks.tolist()
    first = 0
    bounds = [0] if len(words) else []
    for word in range(1, len(words)):
        if breaks[word] or _begins_item(words, word) or _ends(words, word - 1, first):
            bounds.append(word)
            first = word
    bounds.append(len(words))
    return np.array(bounds, dtype=np.int64)


def groups_of_sentences(words: Words, sentences: Ints) -> Ints:
    """The first sentence of each group, then the number of sentences.

    By content, as for words (groups.py): a group ends with its paragraph, and in long paragraphs
    after a sentence whose checksum says so.
    """
    edges = sentences.tolist()
    bounds = [0]
    for sentence in range(1, len(edges) - 1):
        size = sentence - bounds[-1]
        word = edges[sentence]
        marked = size >= LEAST and _is_mark(words, edges[sentence - 1], word)
        if words.breaks[word] or marked or size >= MOST:
            bounds.append(sentence)
    bounds.append(len(edges) - 1)
    return np.array(bounds, dtype=np.int64)


def _begins_item(words: Words, word: int) -> bool:
    start = int(words.starts[word])
    return (
        "\n" in words.text[words.spaces[word] : start]
        and ITEM.match(words.text, start, int(words.ends[word])) is not None
    )


def _ends(words: Words, word: int, first: int) -> bool:
    """Whether a sentence that began with word `first` ends with `word`."""
    tail, end = int(words.tails[word]), int(words.ends[word])
    if tail == end:
        return False
    following = int(words.starts[word + 1])
    if words.text[tail] in FULL_WIDTH:  # a quotation may end here, and its sentence go on
        return following > end or words.text[end - 1] not in CLOSING
    if following == end or words.text[following].islower():
        return False
    if words.text[tail] != ".":
        return True
    parts = words.text[int(words.starts[word]) : tail].split()  # protected words may have spaces
    core = parts[-1].lstrip("([\"'“‘«") if parts else ""
    numbers_item = word == first and core.isdecimal() and len(core) <= 3
    return not (numbers_item or INITIALS.fullmatch(core) or core.lower() in NO_END)


def _is_mark(words: Words, first: int, after: int) -> bool:
    sentence = words.text[int(words.starts[first]) : int(words.ends[after - 1])]
    return zlib.crc32(sentence.encode("utf-8", "surrogatepass")) % ONE_IN == 0
