"""Which chat templates minijinja may render inside the proxy's own process.

Its fuel counts instructions and the text they make, not the walking of containers: a list nested in
itself forty times takes a second to make and for ever to compare, a hundred thousand deep it ends
the process. So a template may not keep containers that it built, nor call what changes or pads:
then none is larger than the request, and each counted instruction costs at most what reading the
request costs. The rules are an allow-list over jinja2's syntax tree; nothing is run.

What is kept is text (or a number), or a view: the request's data, or a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from jinja2 import nodes

_FUNCTIONS = {"namespace", "range", "raise_exception", "strftime_now", "caller"}
_TEXT_METHODS = {"strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "format"} | {
    *("startswith", "endswith", "replace", "join", "count", "find", "isdigit"),
}
_VIEW_METHODS = {"items", "keys", "values", "get", "split", "splitlines"}
_TEXT_FILTERS = {"length", "count", "trim", "string", "lower", "upper", "title", "capitalize"} | {
    *("tojson", "join", "replace", "safe", "escape", "e", "int", "float", "abs", "round", "indent"),
}
_VIEW_FILTERS = {"default", "d", "items", "dictsort", "list", "first", "last", "sort", "unique"} | {
    *("reverse", "select", "selectattr", "reject", "rejectattr", "map", "min", "max"),
}
_STATEMENTS = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Macro),
    *(nodes.Assign, nodes.AssignBlock, nodes.CallBlock, nodes.FilterBlock, nodes.With),
    *(nodes.Break, nodes.Continue, nodes.ExprStmt, nodes.Scope),
)


class Kind(IntEnum):
    TEXT = 0
    VIEW = 1
    BUILT = 2


class Unbounded(Exception):
    """The template is outside the rules; the message names the construct, and quotes nothing."""


def require_bounded(tree: nodes.Template) -> None:
    """Raises Unbounded."""
    _Rules(tree).check()


class _Rules:
    """Kinds are assumed to be text and raised until nothing changes: what is kept can only be made
    from what was kept before."""

    def __init__(self, tree: nodes.Template) -> None:
        self._tree = tree
        self._macros = {macro.name for macro in tree.find_all(nodes.Macro)}
        self._kept = {
            name.name: Kind.VIEW
            for macro in tree.find_all(nodes.Macro)
            for name in macro.args  # whatever it is called with
        }
        self._attributes: dict[str, Kind] = {}

    def check(self) -> None:
        for node in (self._tree, *self._tree.find_all(nodes.Node)):
            self._check_node(node)
        before: object = None
        while before != (before := (dict(self._kept), dict(self._attributes))):
            for target, value in self._assignments():
                self._keep(target, value)
        for node in self._tree.find_all((nodes.Call, nodes.For)):
            self._check_passed(node)

    def _check_node(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
            raise Unbounded(f"it has a {type(node).__name__.lower()} statement")
        if isinstance(node, nodes.For) and node.recursive:
            raise Unbounded("it has a recursive loop")
        if isinstance(node, nodes.Mul | nodes.Pow):
            raise Unbounded("it multiplies")
        if isinstance(node, nodes.Filter) and node.name not in _TEXT_FILTERS | _VIEW_FILTERS:
            raise Unbounded(f"it has the filter {node.name}")
        if isinstance(node, nodes.Call):
            self._check_call(node)

    def _check_call(self, call: nodes.Call) -> None:
        if call.dyn_args is not None or call.dyn_kwargs is not None:
            raise Unbounded("it unpacks arguments")
        called = call.node
        if isinstance(called, nodes.Name) and called.name in _FUNCTIONS | self._macros:
            if called.name == "namespace" and call.args:
                raise Unbounded("it copies a dict into a namespace")
            return
        if isinstance(called, nodes.Getattr) and called.attr in _TEXT_METHODS | _VIEW_METHODS:
            if called.attr == "format" and not _plain_format(called.node):
                raise Unbounded("it formats with a layout of its own")
            return
        raise Unbounded("it calls what is not known to be harmless")

    def _check_passed(self, node: nodes.Node) -> None:
        """A loop's variable and a macro's parameter keep what they are given."""
        if isinstance(node, nodes.For):
            values: list[nodes.Expr] = [node.iter]
        else:
            assert isinstance(node, nodes.Call)
            values = [*node.args, *(pair.value for pair in node.kwargs)]
        for value in values:
            if self._kind(value) is Kind.BUILT:
                raise Unbounded("it passes on a container that it built")

    def _assignments(self) -> Iterator[tuple[nodes.Node, nodes.Expr]]:
        for node in self._tree.find_all((nodes.Assign, nodes.For, nodes.With, nodes.Call)):
            if isinstance(node, nodes.Assign):
                yield node.target, node.node
            elif isinstance(node, nodes.For):
                yield node.target, node.iter
            elif isinstance(node, nodes.With):
                yield from zip(node.targets, node.values, strict=True)
            elif isinstance(node, nodes.Call) and _is_namespace(node):
                for pair in node.kwargs:
                    yield nodes.NSRef("", pair.key), pair.value

    def _keep(self, target: nodes.Node, value: nodes.Expr) -> None:
        if isinstance(value, nodes.Call) and _is_namespace(value):
            self._kept[_name(target)] = Kind.BUILT  # used by its attributes only
            return
        kind = self._kind(value)
        if kind is Kind.BUILT:
            raise Unbounded("it keeps a container that it built")
        if isinstance(target, nodes.NSRef):
            # It outlives its loop's turn: a slice of itself would be one more at each.
            if kind is Kind.VIEW and self._reads_kept_views(value):
                raise Unbounded("it makes what it keeps from what it kept")
            self._attributes[target.attr] = max(kind, self._attributes.get(target.attr, kind))
        elif isinstance(target, nodes.Tuple):
            for item in target.items:
                self._kept[_name(item)] = Kind.VIEW
        else:
            name = _name(target)
            self._kept[name] = max(kind, self._kept.get(name, kind))

    def _reads_kept_views(self, value: nodes.Expr) -> bool:
        return any(
            self._attributes.get(node.attr) is Kind.VIEW
            for node in (value, *value.find_all(nodes.Getattr))
            if isinstance(node, nodes.Getattr)
        )

    def _kind(self, node: nodes.Expr | None) -> Kind:
        match node:
            case None:
                return Kind.TEXT
            case nodes.Name():
                return self._kept.get(node.name, Kind.VIEW)
            case nodes.Getattr():
                return self._attributes.get(node.attr, Kind.VIEW)
            case nodes.Getitem():
                return min(Kind.VIEW, self._kind(node.node)) if not _named(node) else Kind.VIEW
            case nodes.CondExpr():
                return max(self._kind(node.expr1), self._kind(node.expr2))
            case nodes.And() | nodes.Or():
                return max(self._kind(node.left), self._kind(node.right))
            case nodes.Add():
                # Text, or a number, takes nothing but its like.
                sides = self._kind(node.left), self._kind(node.right)
                return Kind.TEXT if Kind.TEXT in sides else Kind.BUILT
            case nodes.List() | nodes.Tuple():
                return _VIEW_IF[all(isinstance(item, nodes.Const) for item in node.items)]
            case nodes.Dict():
                return _VIEW_IF[all(isinstance(pair.value, nodes.Const) for pair in node.items)]
            case nodes.Filter():
                return self._kind_of_filter(node)
            case nodes.Call():
                return self._kind_of_call(node)
        return Kind.TEXT  # constants, comparisons, tests, concatenation, arithmetic
