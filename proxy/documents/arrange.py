"""A request's body with its documents in the order that shares most with other prompts.

The result is the same bytes but for the places of the documents, or the body as it was.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_intdigest

from prefold.proxy.documents.marks import Document, Marks
from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.documents.passages import passages

MAX_DOCUMENTS = 256
"""Of a body, where there are some that may move; further places stay as they are. It bounds the
response header too."""


class Arranged(NamedTuple):
    """`order` names the passages in which documents moved: for each place there, which document of
    the original stands in it now."""

    raw: bytes
    order: str
    documents: int
    moved: int


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def arrange(raw: bytes, marks: Marks, orders: DocumentOrders, seed: int) -> Arranged | None:
    """None if it holds no documents. `seed` keeps apart what engines keep apart: model, tenant,
    salt. Raises ValueError if where the documents are cannot be told."""
    text = raw.decode("utf-8")
    pieces = passages(text, marks)
    count = sum(piece.found.count for piece in pieces)
    if not count:
        return None
    while pieces and not pieces[-1].found.runs:
        pieces.pop()
    context = xxh3_64(seed=seed)
    edits: list[_Edit] = []
    told, moved, left = [], 0, MAX_DOCUMENTS
    for piece in pieces:
        order = list(range(piece.found.count))
        at = piece.start
        left -= len(order) if piece.found.runs else 0
        for run in piece.found.runs if left >= 0 else ():
            context.update(_bytes(text[at : run[0].start]))
            chosen = _order(run, orders, context.intdigest(), seed)
            edit = _rewritten(text, run, chosen)
            # What follows has before it what is sent, not what came.
            context.update(_bytes(edit.text))
            edits.append(edit)
            at = edit.end
            for document, number in zip(run, chosen, strict=True):
                order[document.number] = run[number].number
        context.update(_bytes(text[at : piece.end]))
        changed = sum(number != place for place, number in enumerate(order))
        if changed:
            told.append(f"{piece.place}={','.join(map(str, order))}")
            moved += changed
    made = _edited(raw, text, edits) if moved else raw
    return Arranged(made, "; ".join(told), count, moved)


def _order(run: Sequence[Document], orders: DocumentOrders, context: int, seed: int) -> list[int]:
    """For each place in the run, the number within it of the document that goes there. Raises
    ValueError if that is no permutation."""
    digests = [xxh3_64_intdigest(_bytes(document.content), seed) for document in run]
    waiting: defaultdict[int, deque[int]] = defaultdict(deque)
    for number, digest in enumerate(digests):
        waiting[digest].append(number)
    order = orders.order(context, digests)
    if sorted(order) != sorted(digests):
        raise ValueError("not the same documents")
    return [waiting[digest].popleft() for digest in order]


def _rewritten(text: str, run: Sequence[Document], chosen: Sequence[int]) -> _Edit:
    """What stands between the documents stays in its place."""
    pieces, at = [], run[0].start
    for document, number in zip(run, chosen, strict=True):
        pieces += [text[at : document.start], text[run[number].start : run[number].end]]
        at = document.end
    return _Edit(run[0].start, at, "".join(pieces))


def _edited(raw: bytes, text: str, edits: Sequence[_Edit]) -> bytes:
    """Raises ValueError if not the very same bytes, in another order, come out."""
    pieces, at = [], 0
    for edit in sorted(edits):
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    made = "".join([*pieces, text[at:]]).encode("utf-8")
    if not np.array_equal(_counted(made), _counted(raw)):
        raise ValueError("not the same bytes")
    return made


def _counted(raw: bytes) -> NDArray[np.intp]:
    """How often each byte is there."""
    return np.bincount(np.frombuffer(raw, np.uint8), minlength=256)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
