"""Whether a chat template goes over a message's content in a loop: vLLM's rule for what it gets.

A template with such a loop is given each content as a list of parts, any other one as a text. The
rule is about the template's source, not about what it renders, so the syntax tree is searched.
"""

from collections.abc import Iterator

from jinja2 import nodes


def loops_over_content(tree: nodes.Template) -> bool:
    """`for part in message.content`, where `message` is what a loop over `messages` takes; a loop
    over a macro's parameter that is given this; or, outside of macros, over a name `content`."""
    try:
        messages = _message_names(tree)
    except _NotAName:
        return False
    inside: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        given = _parameters_given_content(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            inside[id(loop)] = inside.get(id(loop), set()) | given
    return any(
        _is_content(loop.iter, messages)
        or (
            isinstance(loop.iter, nodes.Name)
            and loop.iter.name in inside.get(id(loop), {"content"})
        )
        for loop in tree.find_all(nodes.For)
    )


class _NotAName(Exception):
    """vLLM gives up where `messages` is unpacked or goes to an attribute of a namespace."""


def _message_names(tree: nodes.Template) -> set[str]:
    """Names of single messages: the targets of loops over `messages` or over what it is set to."""
    lists, pending = {"messages"}, ["messages"]
    while pending:
        name = pending.pop()
        for assignment in tree.find_all(nodes.Assign):
            if _is_name(assignment.node, {name}) and _target(assignment) not in lists:
                lists.add(_target(assignment))
                pending.append(_target(assignment))
    return {_target(loop) for loop in tree.find_all(nodes.For) if _is_name(loop.iter, lists)}


def _target(node: nodes.Assign | nodes.For) -> str:
    if not isinstance(node.target, nodes.Name):
        raise _NotAName
    return node.target.name


def _parameters_given_content(
    tree: nodes.Template, macro: nodes.Macro, messages: set[str]
) -> set[str]:
    names = [parameter.name for parameter in macro.args]
    given = set()
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            pairs: Iterator[tuple[str, nodes.Expr]] = zip(names, call.args, strict=False)
            keywords = [(keyword.key, keyword.value) for keyword in call.kwargs]
            given |= {name for name, value in [*pairs, *keywords] if _is_content(value, messages)}
    return given & set(names)


def _is_name(node: nodes.Node, names: set[str]) -> bool:
    node = _bare(node)
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name in names


def _is_content(node: nodes.Node, messages: set[str]) -> bool:
    node = _bare(node)
    if isinstance(node, nodes.Getattr):
        return node.attr == "content" and _is_plain_name(node.node, messages)
    return (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and node.arg.value == "content"
        and _is_plain_name(node.node, messages)
    )


def _is_plain_name(node: nodes.Node, names: set[str]) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name in names


def _bare(node: nodes.Node) -> nodes.Node:
    """Without filters, tests and slices around it."""
    match node:
        case nodes.Filter(node=nodes.Node() as inner) | nodes.Test(node=nodes.Node() as inner):
            return _bare(inner)
        case nodes.Getitem(node=nodes.Node() as inner, arg=nodes.Slice()):
            return _bare(inner)
        case _:
            return node
