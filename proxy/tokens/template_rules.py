"""Which chat templates minijinja may render inside the proxy's own process.

Its fuel counts instructions and the text they make, not the walking of containers: a list nested in
itself forty times takes a second to make and for ever to compare, a hundred thousand deep it ends
the process. So a template may not keep containers that it built, nor call what changes or pads:
then none is larger than the request, and each counted instruction costs at most what reading the
request costs. The rules are an allow-list over jinja2's syntax tree; nothing is run.

What is kept is a view (the request's data, or a part of it) or text. Only attributes of namespaces
are known to be text: any other name may be one that the client sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from jinja2 import nodes

_FUNCTIONS = {"namespace", "range", "raise_exception", "strftime_now", "caller"}
_TEXT_METHODS = {"strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize"} | {
    *("startswith", "endswith", "replace", "join", "count", "find", "isdigit"),
}
_VIEW_METHODS = {"items", "keys", "values", "get", "split", "splitlines"}
_METHODS = _TEXT_METHODS | _VIEW_METHODS
_TEXT_FILTERS = {"length", "count", "trim", "string", "lower", "upper", "title", "capitalize"} | {
    *("tojson", "join", "replace", "safe", "escape", "e", "int", "float", "abs", "round", "indent"),
}
_VIEW_FILTERS = {"default", "d", "items", "dictsort", "list", "first", "last", "sort", "unique"} | {
    *("reverse", "select", "selectattr", "reject", "rejectattr", "map", "min", "max"),
}
_DEFAULT = {"default", "d"}
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


def require_bounded(tree: nodes.Template) -> frozenset[str]:
    """Raises Unbounded. The names of its namespaces, which a request must not set."""
    rules = _Rules(tree)
    rules.check()
    return rules.namespaces


class _Rules:
    def __init__(self, tree: nodes.Template) -> None:
        self._tree = tree
        self._macros = {macro.name for macro in tree.find_all(nodes.Macro)}
        self.namespaces = frozenset(
            _name(node.target) for node in tree.find_all(nodes.Assign) if _is_namespace(node.node)
        )
        # Assumed to be text, and raised until nothing changes: what is kept at any time is made
        # from what was kept before.
        self._attributes: dict[str, Kind] = {}
        # Names that may hold what a namespace kept.
        self._derived = {arg.name for macro in tree.find_all(nodes.Macro) for arg in macro.args}

    def check(self) -> None:
        for node in self._tree.find_all(nodes.Node):
            self._check_node(node)
        self._check_namespaces()
        before: object = None
        while before != (before := (dict(self._attributes), set(self._derived))):
            for target, value in self._assignments():
                self._keep(target, value)
        for call in self._tree.find_all(nodes.Call):
            self._check_arguments(call)
        for used in self._tree.find_all(nodes.Filter):
            self._check_arguments(used)

    def _check_node(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
            raise Unbounded(f"it has a {type(node).__name__.lower()} statement")
        if isinstance(node, nodes.For) and node.recursive:
            raise Unbounded("it has a recursive loop")
        if isinstance(node, nodes.Mul | nodes.Pow):
            raise Unbounded("it multiplies")
        if isinstance(node, nodes.Filter):
            self._check_filter(node)
        if isinstance(node, nodes.Call):
            self._check_call(node)

    def _check_filter(self, node: nodes.Filter) -> None:
        if node.name not in _TEXT_FILTERS | _VIEW_FILTERS:
            raise Unbounded(f"it has the filter {node.name}")
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise Unbounded("it unpacks arguments")

    def _check_call(self, call: nodes.Call) -> None:
        if call.dyn_args is not None or call.dyn_kwargs is not None:
            raise Unbounded("it unpacks arguments")
        called = call.node
        if isinstance(called, nodes.Name) and called.name in _FUNCTIONS | self._macros:
            if called.name == "namespace" and call.args:
                raise Unbounded("it copies a dict into a namespace")
        elif not (isinstance(called, nodes.Getattr) and called.attr in _METHODS):
            raise Unbounded("it calls what is not known to be harmless")

    def _check_arguments(self, node: nodes.Call | nodes.Filter) -> None:
        for value in (*node.args, *(pair.value for pair in node.kwargs)):
            self._require_kept(value)
            filled = isinstance(node, nodes.Filter) and node.name in _VIEW_FILTERS - _DEFAULT
            if filled and self._kind(value) is not Kind.TEXT:
                # `map` would put it into each place of a list.
                raise Unbounded("it gives data to a filter of lists")

    def _check_namespaces(self) -> None:
        """Their names are for `ns.x` alone."""
        uses = sum(node.name in self.namespaces for node in self._tree.find_all(nodes.Name))
        uses -= sum(
            _name(node.node) in self.namespaces for node in self._tree.find_all(nodes.Getattr)
        )
        uses -= sum(_is_namespace(node.node) for node in self._tree.find_all(nodes.Assign))
        if uses or "" in self.namespaces:
            raise Unbounded("it uses a namespace, or its name, for something else")

    def _assignments(self) -> Iterator[tuple[nodes.Node, nodes.Node]]:
        for node in self._tree.find_all((nodes.Assign, nodes.For, nodes.With, nodes.Call)):
            if isinstance(node, nodes.For):
                yield node.target, node.iter
            elif isinstance(node, nodes.With):
                yield from zip(node.targets, node.values, strict=True)
            elif isinstance(node, nodes.Call) and _is_namespace(node):
                for pair in node.kwargs:
                    yield nodes.NSRef("", pair.key), pair.value
            elif isinstance(node, nodes.Assign) and not _is_namespace(node.node):
                yield node.target, node.node

    def _keep(self, target: nodes.Node, value: nodes.Node) -> None:
        self._require_kept(value)
        if not isinstance(target, nodes.NSRef):
            if self._reads_kept(value):
                names = (target, *target.find_all(nodes.Name))
                self._derived |= {name.name for name in names if isinstance(name, nodes.Name)}
            return
        kind = self._kind(value)
        if kind is Kind.VIEW and self._reads_kept(value):
            # A slice of itself, in a loop, would be one deeper at each turn.
            raise Unbounded("it makes what it keeps from what it kept")
        self._attributes[target.attr] = max(kind, self._attributes.get(target.attr, kind))

    def _require_kept(self, value: nodes.Node) -> None:
        if self._kind(value) is Kind.BUILT:
            raise Unbounded("it keeps a container that it built")

    def _reads_kept(self, value: nodes.Node) -> bool:
        """Whether it may hold a view that a namespace keeps."""
        for node in (value, *value.find_all((nodes.Name, nodes.Getattr))):
            if isinstance(node, nodes.Name) and node.name in self._derived:
                return True
            if isinstance(node, nodes.Getattr) and self._attribute(node) is Kind.VIEW:
                return True
        return False

    def _attribute(self, node: nodes.Getattr) -> Kind | None:
        """None: it is none of a namespace."""
        if isinstance(node.node, nodes.Name) and node.node.name in self.namespaces:
            return self._attributes.get(node.attr, Kind.TEXT)
        return None

    def _kind(self, node: nodes.Node) -> Kind:
        match node:
            case nodes.Name():
                return Kind.VIEW
            case nodes.Getattr():
                kind = self._attribute(node)
                return kind if kind is not None else max(Kind.VIEW, self._kind(node.node))
            case nodes.Getitem():
                return self._kind(node.node)
            case nodes.CondExpr():
                branches = (node.expr1, node.expr2)
                return max(self._kind(branch) for branch in branches if branch is not None)
            case nodes.And() | nodes.Or():
                return max(self._kind(node.left), self._kind(node.right))
            case nodes.Add():
                # Text, or a number, takes nothing but its like.
                sides = self._kind(node.left), self._kind(node.right)
                return Kind.TEXT if Kind.TEXT in sides else Kind.BUILT
            case nodes.List() | nodes.Tuple():
                constant = all(isinstance(item, nodes.Const) for item in node.items)
                return Kind.VIEW if constant else Kind.BUILT
            case nodes.Dict():
                constant = all(isinstance(pair.value, nodes.Const) for pair in node.items)
                return Kind.VIEW if constant else Kind.BUILT
            case nodes.Filter():
                return self._kind_of_filter(node)
            case nodes.Call():
                return self._kind_of_call(node)
        return Kind.TEXT  # constants, comparisons, tests, `~`, arithmetic

    def _kind_of_filter(self, node: nodes.Filter) -> Kind:
        if node.name in _TEXT_FILTERS or node.node is None:
            return Kind.TEXT
        if node.name in _DEFAULT:
            return max(map(self._kind, (node.node, *node.args)))
        return max(Kind.VIEW, self._kind(node.node))

    def _kind_of_call(self, node: nodes.Call) -> Kind:
        called = node.node
        if isinstance(called, nodes.Name):
            if called.name == "namespace":
                return Kind.BUILT
            return Kind.VIEW if called.name == "range" else Kind.TEXT
        if isinstance(called, nodes.Getattr) and called.attr in _VIEW_METHODS:
            return max(Kind.VIEW, *map(self._kind, (called.node, *node.args)))
        return Kind.TEXT


def _is_namespace(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "namespace"
    )


def _name(node: nodes.Node) -> str:
    return node.name if isinstance(node, nodes.Name) else ""
