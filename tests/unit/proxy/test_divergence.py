"""Prompts that part from recent ones: which they are compared with, where, and what is held."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest

from prefold.backends.backend import Mode
from prefold.measurement.divergence.record import ALIKE, Divergence, Kind
from prefold.measurement.divergence.tally import DivergenceTally
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.divergence import RECENT, Divergences
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody, CompletionBody
from prefold.proxy.prompt import Prompt
from prefold.proxy.responses import ResponsesBody

RULES = " Answer briefly, name your sources, and never speak of what is not in the documents." * 10


def chat(system: str, *turns: str, **members: Any) -> ChatBody:
    messages = [{"role": "system", "content": system}]
    messages += [
        {"role": ("user", "assistant")[at % 2], "content": turn} for at, turn in enumerate(turns)
    ]
    return ChatBody(messages=messages, **members)


def prompt(body: Body) -> Prompt:
    """A token for each character of its parts' texts."""
    ids = np.frombuffer(repr(body.key_parts()).encode("utf-32-le"), dtype=np.uint32)
    return Prompt({Mode.FEEDBACK: Prefix.of_tokens(ids, 1, None)}, len(ids))


def look(
    divergences: Divergences, body: Body, *, seed: int = 1, size: int | None = None
) -> Divergence | None:
    made = prompt(body)
    assert made.tokens is not None
    return divergences.look(body, size or made.tokens, seed, made)


def always(**members: Any) -> Divergences:
    return Divergences(b"secret", 1.0, draw=lambda: 0.0, **members)


def test_a_timestamp_at_the_beginning_is_told() -> None:
    """Its place in tokens, and all that follows as lost, a token for each character here."""
    divergences = always()
    bodies = [chat(f"Now: 2026-01-0{day}.{RULES}", "hi") for day in (1, 2)]
    assert look(divergences, bodies[0]) == ALIKE
    made = look(divergences, bodies[1])

    assert made is not None
    assert made.kind is Kind.TIMESTAMP
    assert made.position == repr(bodies[0].key_parts()).index("1.")
    assert made.lost == pytest.approx(len(RULES), abs=20)
    assert len(made.template) == 12


def test_conversations_that_go_on_part_from_nothing() -> None:
    """Whatever else was sent between."""
    divergences = always()
    look(divergences, chat(RULES, "a"))
    look(divergences, chat(RULES, "other"))

    assert look(divergences, chat(RULES, "a", "b", "c")) == ALIKE


def test_it_is_compared_with_what_it_shares_most() -> None:
    """Not with the latest: on the same day only the question is another one."""
    divergences = always()
    for day in (1, 2, 3):
        look(divergences, chat(f"Now: 2026-01-0{day}.{RULES}", "What is it?"))
    made = look(divergences, chat(f"Now: 2026-01-01.{RULES}", "Who made it?"))

    assert made is not None
    assert made.kind is Kind.MESSAGE
    assert made.lost == 0


def test_of_those_that_differ_in_the_same_text_the_most_alike_is_taken() -> None:
    """The one of the same hour, though later ones were of other days."""
    divergences = always()
    bodies = [
        chat(f"Now: 2026-{moment}.{RULES}")
        for moment in ("01-01 10:00", "01-01 11:00", "02-03 10:30")
    ]
    for body in bodies:
        look(divergences, body)
    made = look(divergences, chat(f"Now: 2026-01-01 10:30.{RULES}"))

    assert made is not None
    assert made.position == repr(bodies[0].key_parts()).index("00.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CompletionBody(prompt=f"Request 1.{RULES}"), CompletionBody(prompt=f"Request 2.{RULES}")),
        (
            MessagesBody(messages=[{"role": "user", "content": "hi"}], system=f"Request 1.{RULES}"),
            MessagesBody(messages=[{"role": "user", "content": "hi"}], system=f"Request 2.{RULES}"),
        ),
        (
            ResponsesBody(input="hi", instructions=f"Request 1.{RULES}"),
            ResponsesBody(input="hi", instructions=f"Request 2.{RULES}"),
        ),
    ],
)
def test_all_bodies_with_a_prompt_are_compared(one: Body, other: Body) -> None:
    """Completions, messages and responses as chats."""
    divergences = always()
    look(divergences, one)
    made = look(divergences, other)

    assert made is not None
    assert made.kind is Kind.NUMBER


def test_other_namespaces_are_not_compared() -> None:
    """Another model or tenant has another seed."""
    divergences = always()
    look(divergences, chat(f"Request 1.{RULES}"))

    assert look(divergences, chat(f"Request 2.{RULES}"), seed=2) == ALIKE


def test_a_share_is_compared_and_all_are_remembered() -> None:
    """Every second here, each with the one before it."""
    divergences = Divergences(b"secret", 0.5, draw=cycle((0.9, 0.1)).__next__)
    made = [look(divergences, chat(f"Request {number}.{RULES}")) for number in range(6)]

    assert [one is None for one in made] == [True, False] * 3
    assert all(one is None or one.kind is Kind.NUMBER for one in made)


def test_prompts_of_ids_and_large_ones_are_not_looked_at() -> None:
    """There is no text to tell what differs, or too much of it."""
    divergences = always()

    assert look(divergences, CompletionBody(prompt=[1, 2, 3])) is None
    assert look(divergences, chat(RULES), size=2**21) is None


def test_the_template_is_known_again_and_keyed() -> None:
    """Whatever the moment; another template or another secret has another digest."""
    divergences, others = always(), Divergences(b"other", 1.0, draw=lambda: 0.0)
    made = [
        one.template
        for form in ("Clock: 2026-01-0{}.", "Date, time: 2026-01-0{}.")
        for day in (1, 2, 3)
        if (one := look(divergences, chat(form.format(day) + RULES))) is not None
    ]
    look(others, chat(f"Clock: 2026-01-01.{RULES}"))
    keyed = look(others, chat(f"Clock: 2026-01-02.{RULES}"))

    assert made[1] == made[2]
    assert made[4] == made[5]
    assert keyed is not None
    assert len({made[1], made[4], keyed.template}) == 3


def test_what_is_held_is_bounded() -> None:
    """By number for each beginning, and by bytes over all: what is displaced is not held."""
    divergences = always(max_held_bytes=20_000)
    bodies = [
        chat(f"Q{number % 5} {'xyzw'[number % 4]} and {number}{RULES}") for number in range(60)
    ]
    sizes = [prompt(body).tokens or 0 for body in bodies]
    for body in bodies:
        look(divergences, body)
    groups = divergences._groups.values()
    kept = [one for group in groups for one in group]

    assert sum(one.size for one in kept) <= 20_000
    assert divergences._room == 20_000 - sum(one.size for one in kept)
    assert 0 < len(kept) < len(bodies)
    assert all(len(group) <= RECENT for group in groups)
    assert max(sizes) * 3 < 20_000


def test_the_tally_keeps_to_its_rows() -> None:
    """Further templates are counted together; requests and tokens are all there."""
    tally = DivergenceTally(max_rows=3)
    for number in range(10):
        tally.add(Divergence(kind=Kind.UUID, template=str(number), position=20, lost=5))
    tally.add(ALIKE)
    report = tally.report()

    assert (report.looked_at, report.alike) == (11, 1)
    assert len(report.rows) == 4
    assert sum(row.requests for row in report.rows) == 10
    assert tally.by_kind() == {Kind.UUID: (10, 50)}
    assert {row.position for row in report.rows} == {16}
