"""The net benefit that a ledger's rows show: what was saved, how fast groups were, how they differ.

Rows in, figures out: which file, which settings and which cache models is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from prefold.measurement.benefit.columns import Conversations
from prefold.measurement.benefit.compare import Comparison, compare, mixed
from prefold.measurement.benefit.counterfactual import Counterfactual
from prefold.measurement.benefit.prefill import Prefills, Rate
from prefold.measurement.benefit.slices import SliceTally, Slicing
from prefold.measurement.benefit.tally import Group, Tally
from prefold.measurement.definitions.profile import Profile
from prefold.measurement.ledger.reader import LedgerRow

ARM = "arm"
CONTROL = "control"
NONE = "(none)"
ALL = "all"


class BenefitError(Exception):
    """What is asked for is not in the rows; the message says what is."""


class Benefit(msgspec.Struct, frozen=True, kw_only=True):
    """`by` None: all requests as one group. `randomised`: groups were drawn by lot, so that their
    differences are what they did. Moments are seconds since 1970."""

    by: str | None
    profile: str
    source: str
    limits_ms: dict[str, float]
    first_received: float | None
    last_received: float | None
    randomised: bool
    total: Group
    groups: tuple[Group, ...]
    mixed_conversations: int
    slicing: Slicing | None
    """Of arms that had the whole fleet by turns; None: of any other groups."""
    comparisons: tuple[Comparison, ...]
    rates: dict[str, Rate]
    counterfactual: Counterfactual | None = None


class Reading:
    """Of rows, once through. Mutable."""

    def __init__(
        self,
        profile: Profile,
        by: str | None = None,
        limits_ms: Mapping[str, float] | None = None,
        *,
        by_time: bool = False,
    ) -> None:
        """`by` as in `LedgerRow.group`; `limits_ms` by the names of `tally.GOODPUT`. `by_time`:
        where groups are arms, they are those of time slices."""
        self._profile = profile
        self._by = by
        self._limits = dict(limits_ms or {})
        self._total = Tally(ALL, profile, self._limits)
        self._groups: dict[str, Tally] = {}
        self._conversations = Conversations()
        self._slices = SliceTally() if by_time and by == ARM else None
        self._prefills = Prefills()
        self._backends: dict[str, set[str]] = {}
        self._first: float | None = None
        self._last: float | None = None

    def read(self, rows: Iterable[LedgerRow]) -> None:
        """Raises ValueError where `by` is nothing that a row has."""
        for row in rows:
            number = self._conversations.number(row.conversation)
            unit = number if self._slices is None else self._slices.add(row)
            self._total.add(row, number, unit)
            self._prefills.add(row)
            if self._by is not None:
                self._group(row.group(self._by) or NONE).add(row, number, unit)
            if row.backend is not None and row.sent is not None:
                self._backends.setdefault(row.model or "", set()).add(row.backend)
            self._first = min(self._first or row.received, row.received)
            self._last = max(self._last or row.received, row.received)

    def _group(self, name: str) -> Tally:
        tally = self._groups.get(name)
        if tally is None:
            tally = self._groups[name] = Tally(name, self._profile, self._limits)
        return tally

    @property
    def backends(self) -> dict[str, list[str]]:
        """That answered, by model."""
        return {model: sorted(names) for model, names in self._backends.items()}

    def benefit(
        self, control: str | None = None, counterfactual: Counterfactual | None = None
    ) -> Benefit:
        """`control`: the group that the others are compared with; by default the one of that name,
        else the one of most requests. Raises BenefitError."""
        rates = self._prefills.rates()
        columns = {name: tally.columns for name, tally in sorted(self._groups.items())}
        randomised = self._by == ARM
        if randomised:
            columns.pop(NONE, None)  # no arm was drawn for them
        chosen = self._control(control, columns)
        left_out = mixed(list(columns.values()))
        slicing = None if self._slices is None else self._slices.figures(columns, left_out)
        comparisons: tuple[Comparison, ...] = ()
        if chosen is not None:
            comparisons = compare(
                (chosen, columns.pop(chosen)),
                columns,
                self._profile,
                left_out,
                curves=randomised,
                rounds=None if self._slices is None else self._slices.rounds,
            )
        return Benefit(
            by=self._by,
            profile=self._profile.label,
            source=self._profile.source,
            limits_ms=self._limits,
            first_received=self._first,
            last_received=self._last,
            randomised=randomised,
            total=self._total.figures(rates),
            groups=tuple(tally.figures(rates) for _, tally in sorted(self._groups.items())),
            mixed_conversations=0 if slicing is not None else len(left_out),
            slicing=slicing,
            comparisons=comparisons,
            rates=rates,
            counterfactual=counterfactual,
        )

    def _control(self, control: str | None, columns: Mapping[str, object]) -> str | None:
        if control is not None and control not in columns:
            there = ", ".join(columns) or "none"
            raise BenefitError(f"no group {control!r} to compare with; there are: {there}")
        if len(columns) < 2:
            return None
        if control is not None:
            return control
        if CONTROL in columns:
            return CONTROL
        return max(columns, key=lambda name: len(self._groups[name].columns))
