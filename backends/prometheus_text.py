"""Reading an engine's /metrics: the standard parser, cut down to the samples an adapter wants."""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(body: bytes, names: Collection[str]) -> dict[str, list[Sample]]:
    """Samples by name, for `names` only; an unreadable page gives none.

    Lines of other metrics are dropped before parsing: vLLM's page is thousands of lines.
    """
    wanted = "\n".join(
        line
        for line in body.decode("utf-8", "replace").splitlines()
        if line.partition("{")[0].partition(" ")[0] in names
    )
    found: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(wanted + "\n"):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
    except ValueError:
        return {}
    return found


def total(found: dict[str, list[Sample]], name: str) -> int | None:
    """The sum over all label sets (engines of one server), None if the metric is absent."""
    if name not in found:
        return None
    return int(sum(sample.value for sample in found[name]))
