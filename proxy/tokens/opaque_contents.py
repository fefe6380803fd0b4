"""Whether a chat template only passes the contents of messages on, without looking into them.

What such a template makes of a chat is known from what it makes of one whose long contents were
replaced by short marks, so a long text that was seen before need not be rendered, cut and looked up
again. The rule is an allow-list over jinja2's syntax tree; nothing is run.

Contents may be written, joined with other texts, trimmed, tested for their type, for emptiness and
against a constant. Names are taken for contents, messages or lists of messages by how they are
assigned, wherever that is in the template.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeGuard

from jinja2 import nodes

_TYPE_TESTS = {"string", "defined", "undefined", "none", "mapping", "sequence", "iterable"}
_EQUALITY = {"eq", "ne"}
_CONSTANT = {"namespace", "range", "raise_exception"}
_INDICES = (nodes.Const, nodes.Slice, nodes.Name, nodes.Neg, nodes.Add, nodes.Sub)
_NEIGHBOURS = {"previtem", "nextitem"}
"""By which a loop gives its messages once more."""
LONGER_THAN_CONSTANTS = 256
"""Characters: no constant that contents are compared with is so long."""
_OPEN_STATEMENTS = (
    *(nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.With),
    *(nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block),
)
"""In which values take ways that are not followed here."""


class _Kind(Enum):
    OTHER = auto()
    CONTENT = auto()
    MESSAGE = auto()
    LIST = auto()


class _LooksInside(Exception):
    """Or might."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """What a template that passes contents on does to them, or with them, at most."""

    trims: bool
    compares: bool
    """With constants, which are shorter than LONGER_THAN_CONSTANTS."""
    constant: bool
    """The same chat gives the same text at any time."""


def passes_contents_on(tree: nodes.Template) -> Passing | None:
    """For contents that are texts, not empty, and no constant of the template. None: it looks into
    them, or may."""
    flow = _Flow(tree)
    try:
        flow.check()
    except _LooksInside:
        return None
    called = [call.node for call in tree.find_all(nodes.Call)]
    constant = all(not isinstance(node, nodes.Name) or node.name in _CONSTANT for node in called)
    return Passing(trims=flow.trims, compares=flow.compares, constant=constant)


class _Flow:
    trims = False
    compares = False

    def __init__(self, tree: nodes.Template) -> None:
        self._tree = tree
        self._names: dict[str, _Kind] = {"messages": _Kind.LIST}

    def check(self) -> None:
        if any(True for _ in self._tree.find_all(_OPEN_STATEMENTS)):
            raise _LooksInside
        before: dict[str, _Kind] = {}
        while before != (before := dict(self._names)):
            for target, kind in self._assignments():
                self._assign(target, kind)
        for node in self._tree.find_all(nodes.Node):
            self._check_calls(node)
            for child in node.iter_child_nodes():
                if isinstance(child, nodes.Expr) and not self._may_be_in(node, child):
                    raise _LooksInside

    def _check_calls(self, node: nodes.Node) -> None:
        """Methods of messages reach their contents by other ways."""
        if isinstance(node, nodes.Getattr) and node.attr in _NEIGHBOURS:
            raise _LooksInside
        if isinstance(node, nodes.Getitem) and _is_text(node.arg) and node.arg.value in _NEIGHBOURS:
            raise _LooksInside
        if isinstance(node, nodes.Call):
            called = node.node
            owner = called.node if isinstance(called, nodes.Getattr | nodes.Getitem) else None
            if self._kind(owner) is not _Kind.OTHER:
                raise _LooksInside

    def _assignments(self) -> Iterator[tuple[nodes.Node, _Kind]]:
        for node in self._tree.find_all((nodes.Assign, nodes.For)):
            if isinstance(node, nodes.Assign):
                yield node.target, self._kind(node.node)
            elif isinstance(node, nodes.For):
                iterated = self._kind(node.iter)
                yield node.target, _Kind.MESSAGE if iterated is _Kind.LIST else _Kind.OTHER

    def _assign(self, target: nodes.Node, kind: _Kind) -> None:
        """A name stands for one kind of thing only; a namespace's attribute for none of these."""
        if kind is _Kind.OTHER:
            return
        if not isinstance(target, nodes.Name):
            raise _LooksInside
        if self._names.setdefault(target.name, kind) is not kind:
            raise _LooksInside

    def _kind(self, node: nodes.Node | None) -> _Kind:
        match node:
            case nodes.Name():
                return self._names.get(node.name, _Kind.OTHER)
            case nodes.Getattr(node=inner, attr=attribute):
                return self._part(inner, attribute)
            case nodes.Getitem(node=inner, arg=nodes.Const(value=str() as attribute)):
                return self._part(inner, attribute)
            case nodes.Getitem(node=inner, arg=nodes.Slice()):
                return self._kind(inner)
            case nodes.Getitem(node=inner) if self._kind(inner) is _Kind.LIST:
                return _Kind.MESSAGE
            case nodes.Filter(node=inner, name="trim", args=[], kwargs=[]):
                return self._kind(inner)
            case nodes.Concat(nodes=parts):
                return self._any(*parts)
            case nodes.Add(left=left, right=right) | nodes.And(left=left, right=right):
                return self._any(left, right)
            case nodes.Or(left=left, right=right):
                return self._any(left, right)
            case nodes.CondExpr(expr1=one, expr2=other):
                return self._any(one, other)
        return _Kind.OTHER

    def _part(self, inner: nodes.Node, attribute: str) -> _Kind:
        """Of a message: its content, and whatever else it holds, which may hold texts as well."""
        if self._kind(inner) is _Kind.LIST:
            raise _LooksInside
        content = self._kind(inner) is _Kind.MESSAGE and attribute == "content"
        return _Kind.CONTENT if content else _Kind.OTHER

    def _any(self, *parts: nodes.Node | None) -> _Kind:
        kinds = {self._kind(part) for part in parts} - {_Kind.OTHER}
        if len(kinds) > 1:
            raise _LooksInside
        return kinds.pop() if kinds else _Kind.OTHER

    def _may_be_in(self, node: nodes.Node, child: nodes.Expr) -> bool:
        """Whether `child` may stand where it stands, directly in `node`."""
        kind = self._kind(child)
        if kind is _Kind.OTHER or (isinstance(child, nodes.Name) and child.ctx == "store"):
            return True
        if isinstance(node, nodes.If | nodes.CondExpr | nodes.Not | nodes.Assign):
            return True
        if isinstance(node, nodes.And | nodes.Or):
            return True
        if isinstance(node, nodes.Test):
            return node.name in _TYPE_TESTS
        if kind is _Kind.CONTENT:
            return self._content_may_be_in(node, child)
        if isinstance(node, nodes.For):
            return kind is _Kind.LIST and child is node.iter
        if isinstance(node, nodes.Filter):
            return kind is _Kind.LIST and node.name in ("length", "count")
        if isinstance(node, nodes.Getitem):
            fits = (kind is _Kind.LIST) == (not _is_text(node.arg))
            return child is node.node and fits and isinstance(node.arg, _INDICES)
        return isinstance(node, nodes.Getattr) and kind is _Kind.MESSAGE

    def _content_may_be_in(self, node: nodes.Node, child: nodes.Expr) -> bool:
        if isinstance(node, nodes.Output | nodes.Add | nodes.Concat):
            return True
        if isinstance(node, nodes.Filter):
            self.trims = True
            return node.name == "trim" and not node.args and not node.kwargs
        if isinstance(node, nodes.Compare):
            self.compares = True
            return all(
                operand.op in _EQUALITY and _is_short_constant(operand.expr) for operand in node.ops
            )
        return False


def _is_short_constant(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and len(str(node.value)) < LONGER_THAN_CONSTANTS


def _is_text(node: nodes.Node) -> TypeGuard[nodes.Const]:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)
