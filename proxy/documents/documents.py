"""Whose documents are put in order: those of models that are set so, and of requests that ask."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from prefold.proxy.documents.arrange import Arranged, arrange
from prefold.proxy.documents.marks import KINDS, Marks
from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.errors import BadRequest

log = logging.getLogger(__name__)
HEADER = "X-Prefold-Documents"
"""Of a request: which kinds of marks count, or `none`. Of an answer: what moved."""
_HTML = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


class _Looked(NamedTuple):
    """A body with none of `signs` in it holds no such documents, and is not taken apart."""

    marks: Marks
    signs: tuple[bytes, ...]


class Documents:
    """`base` holds delimiters and fence; `models` names the kinds of marks for each model, ()
    where only a request's header can ask."""

    def __init__(
        self,
        *,
        base: Marks,
        models: Mapping[str, Collection[str]],
        by_header: bool,
        orders: DocumentOrders,
    ) -> None:
        self._base = base
        self._models = {model: _looked(base, kinds) for model, kinds in models.items() if kinds}
        self._by_header = by_header
        self._orders = orders

    @property
    def used(self) -> bool:
        return self._by_header or bool(self._models)

    def arrange(
        self, raw: bytes, model: str, headers: Mapping[str, str], seed: int
    ) -> Arranged | None:
        """None where the body is to stay as it is. Raises BadRequest for a header that asks for
        what there is not."""
        looked = self._models.get(model)
        if self._by_header and (asked := headers.get(HEADER)) is not None:
            looked = self._asked(asked)
        if looked is None or not any(sign in raw for sign in looked.signs):
            return None
        try:
            return arrange(raw, looked.marks, self._orders, seed)
        except (ValueError, RecursionError):
            log.debug("the documents of a request could not be told; it goes out as it came")
            return None

    def _asked(self, value: str) -> _Looked | None:
        kinds = [kind.strip().lower() for kind in value.split(",")]
        if kinds == ["none"]:
            return None
        if not set(kinds) <= set(KINDS):
            raise BadRequest(f"{HEADER}: expected none, or some of {', '.join(KINDS)}.")
        return _looked(self._base, kinds)


def _looked(base: Marks, kinds: Collection[str]) -> _Looked:
    marks = replace(
        base,
        parts="parts" in kinds,
        member="member" in kinds,
        delimited="delimited" in kinds,
    )
    signs = []
    if marks.parts:
        signs.append(b'"type"')
    if marks.member:
        signs.append(b'"documents"')
    if marks.delimited:
        signs += _ways_to_write(marks.start)
    return _Looked(marks, tuple(signs))


def _ways_to_write(text: str) -> set[bytes]:
    """In JSON, as encoders do it: with or without what is not ASCII, with what HTML gives a meaning
    escaped or not. In another way it is not seen, and its documents stay where they are."""
    ways = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    ways |= {way.translate(_HTML) for way in ways}
    ways |= {way.replace("/", "\\/") for way in ways}
    return {way.encode() for way in ways}
