"""What is wrong with a setting, in words for whoever wrote it: out of msgspec's message, the types
of the settings, and the environment that a value came from.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a text in quotes",
}
NEAR = 0.6
NEAR_ELSEWHERE = 0.85


def readable(message: str, settings: type) -> str:
    """msgspec says "... - at `$.server.port`"; a reader of TOML looks for `server.port`."""
    reason, _, place = message.partition(" - at `$.")
    where = place.rstrip("`")
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", reason):
        return f"{where}: {missing[1]} is missing"
    if reason.startswith("Expected `array`, got `object`"):
        return f"{where}: expected a list of tables: write [[{where}]]"
    if (wrong := re.fullmatch(r"Invalid enum value '?(.*?)'?", reason)) and where:
        return f"{where}: {_none_of(wrong[1], choices(where, settings))}"
    reason = re.sub("`(\\w+)`", lambda found: KINDS.get(found[1], found[0]), reason)
    reason = reason.replace("Expected", "expected")
    return f"{where}: {reason}" if where else reason


def unknown(key: str, where: str, table: type, settings: type) -> str:
    """Of a key that `table` does not have; `where` is "" or "server."."""
    own = list(get_type_hints(table))
    said = f"unknown setting {where}{key}"
    if near := difflib.get_close_matches(key, own, n=1, cutoff=NEAR):
        return f"{said}; did you mean {where}{near[0]}?"
    elsewhere = {
        name: f"{field.name}.{name}"
        for field in reversed(dataclasses.fields(settings))
        if dataclasses.is_dataclass(kind := get_type_hints(settings)[field.name])
        for name in get_type_hints(kind)
    }
    if near := difflib.get_close_matches(key, elsewhere, n=1, cutoff=NEAR_ELSEWHERE):
        return f"{said}; did you mean {elsewhere[near[0]]}?"
    return f"{said}; there are {', '.join(sorted(own))}"


def with_source(message: str, env: Mapping[str, str], prefix: str) -> str:
    """The message, and the environment variable whose value it is about, if that is where it is
    from."""
    variable = prefix + message.partition(":")[0].upper().replace(".", "__")
    return f"{message} (environment variable {variable})" if variable in env else message


def choices(where: str, settings: type) -> list[str]:
    """What a setting of fixed words may be; `where` is "routing.policy" or "backends[0].engine"."""
    kind: Any = settings
    for name in re.sub(r"\[[^\]]*\]", "", where).split("."):
        hints = get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        kind = hints.get(name, kind)  # else the name of a model: its table follows
        kind = _inner(kind)
    return _words(kind)


def _inner(kind: Any) -> Any:
    """The dataclass in a tuple or dict of them."""
    found = [one for one in get_args(kind) if dataclasses.is_dataclass(one)]
    return found[0] if found and get_origin(kind) in (tuple, dict) else kind


def _words(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [word for one in get_args(kind) for word in _words(one)]


def _none_of(given: str, words: list[str]) -> str:
    shown = ", ".join(word or '""' for word in words)
    near = difflib.get_close_matches(given, words, n=1, cutoff=NEAR)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{given!r} is none of {shown}{hint}"
