"""Case files: YAML to frozen values, families expanded. What a script or an expectation means is
not known here; `cases/README.md` has the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "cases"
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`input` and `expected` are those of the file with the family member's own fields merged in
    and the snippets filled in."""

    id: str
    family: str
    file: str
    kind: str
    rule: str
    input: Mapping[str, Any]
    expected: Mapping[str, Any]


def load_cases(folder: Path = FOLDER) -> list[Case]:
    """Every case of every file. Raises ValueError for an id that is used twice or a bad field."""
    snippets = yaml.safe_load((folder / "snippets.yaml").read_text(encoding="utf-8"))
    cases = [
        case
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "snippets.yaml"
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
        for case in _expanded(_filled(entry, snippets), path.stem)
    ]
    ids = [case.id for case in cases]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"case ids used twice: {sorted(twice)}")
    return cases


def _expanded(entry: Mapping[str, Any], file: str) -> Iterator[Case]:
    unknown = entry.keys() - {"id", "kind", "rule", "input", "expected", "each"}
    if unknown:
        raise ValueError(f"{entry['id']}: unknown fields {sorted(unknown)}")
    for name, own in entry.get("each", {"": {}}).items():
        yield Case(
            id=f"{entry['id']}-{name}" if name else entry["id"],
            family=entry["id"],
            file=file,
            kind=entry["kind"],
            rule=entry["rule"],
            input=_merged(entry.get("input", {}), own.get("input", {})),
            expected=_merged(entry.get("expected", {}), own.get("expected", {})),
        )


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged member by member, everything else is replaced."""
    merged = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _filled(value: Any, snippets: Mapping[str, str]) -> Any:
    """Every `{{name}}` in every text replaced by the snippet of that name."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda found: snippets[found[1]], value)
    if isinstance(value, dict):
        return {key: _filled(inner, snippets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, snippets) for inner in value]
    return value


def as_bytes(value: Any) -> bytes:
    """A text is Latin-1, so each character is one byte; {utf8: text} is UTF-8; and
    {prefix, repeat, times, then, repeat_close, suffix} generates one: prefix, `times` times repeat,
    then, `times` times repeat_close, suffix. Raises UnicodeEncodeError."""
    if isinstance(value, str):
        return value.encode("latin-1")
    if "utf8" in value:
        return str(value["utf8"]).encode()
    middle = as_bytes(value["repeat"]) * int(value["times"])
    closing = as_bytes(value.get("repeat_close", "")) * int(value["times"])
    return b"".join(
        (
            as_bytes(value.get("prefix", "")),
            middle,
            as_bytes(value.get("then", "")),
            closing,
            as_bytes(value.get("suffix", "")),
        )
    )
