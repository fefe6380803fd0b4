"""The demo's workload: tenants with long system prompts, conversations, and an order of requests.

Pure and seeded: the same arguments give the same bytes. Assistant turns are scripted, so that
every arm of a comparison sends exactly the same prompts whatever the model answers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

Message = dict[str, str]

TURNS = 3
"""User turns of a conversation: later turns extend earlier ones."""

# English in SmolLM2's vocabulary, whose digits are single tokens; only sizes the system prompts.
CHARS_PER_TOKEN = 4.2

_PRODUCTS = (
    ("tide-gauge rental", "gauge", "harbour office", "skipper"),
    ("bicycle leasing", "bicycle", "workshop", "rider"),
    ("seed catalogue", "parcel", "seed barn", "grower"),
    ("piano tuning", "visit", "tuning desk", "pianist"),
    ("lift maintenance", "lift", "control room", "caretaker"),
    ("library loan", "loan", "lending desk", "reader"),
    ("ferry ticket", "ticket", "pier office", "passenger"),
    ("water filter", "filter", "service van", "householder"),
    ("photo archive", "print", "archive room", "photographer"),
    ("greenhouse heating", "heater", "boiler house", "gardener"),
)
_COMPANY_FIRST = ("Alder", "Brook", "Cinder", "Dunmore", "Elm", "Fenwick", "Gable", "Harrow")
_COMPANY_SECOND = ("bridge", "field", "gate", "haven", "mere", "ridge", "stead", "well")

_RULES = (
    "A {person} may cancel a {item} up to {n} days before the agreed date without a fee.",
    "After that, the {place} keeps {n} percent of the price and returns the rest within {m} days.",
    "Never promise a date for a {item} unless the {place} has confirmed it in writing.",
    "If a {person} reports damage, ask for the number on the {item} and one clear photograph.",
    "Complaints go to the {place}, which answers within {n} working days, Saturdays excluded.",
    "Prices for a {item} rise by {n} percent in the season that starts in week {m}.",
    "Do not give one {person} any detail of another, not even whether they are known here.",
    "When the {place} is closed, say so first, then offer a call on the next working morning.",
    "A {item} that is returned late costs {n} euros for each day, but never more than {m} euros.",
    "The {place} opens at {n} in the morning and takes no calls during the last {m} minutes.",
    "Offer a replacement {item} only if the first one failed within {n} weeks of delivery.",
    "Every {person} under sixteen needs the signature of an adult before a {item} is handed over.",
    "Invoices are sent on day {n} of the month, and the {person} has {m} days to pay them.",
    "If the question is about tax, name form {n} and pass the {person} on to the {place}.",
    "Write short sentences, use the word {item} as the {person} does, and do not exclaim.",
    "Ask at most {n} questions in one answer, and only those that the {place} needs to go on.",
    "Keep the record of a {item} for {n} years, and delete it when the {person} asks for that.",
    "Repairs that take longer than {n} hours are done at the {place}, never at the door.",
)
_QUESTIONS = (
    "How late may I cancel my {item}?",
    "Who pays if the {item} arrives damaged?",
    "When does the {place} open on Friday?",
    "Can I get a second {item} this week?",
    "What do I need to bring to the {place}?",
    "Is there a fee for changing the date?",
    "How long do you keep my record?",
    "My {item} is late, what now?",
    "May my son collect the {item}?",
    "Where do I send the form?",
)
_ANSWERS = (
    "The {place} can confirm that today.",
    "Yes, as long as it is in writing.",
    "That depends on the date of the {item}.",
    "Please have your number ready.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    tenant: int
    conversation: int
    """Counted over all tenants."""
    turn: int
    """0 is the first of its conversation."""
    messages: tuple[Message, ...]


def build_workload(
    *, seed: int, tenants: int, requests: int, prefix_tokens: int
) -> tuple[Request, ...]:
    """The requests of one arm, in the order clients take them.

    Conversations are dealt to the tenants in turn and their requests shuffled, turns of one
    conversation staying in order. Strict alternation would make round robin an affinity policy.
    System prompts are about `prefix_tokens` long and differ from their first sentence on.
    """
    rng = random.Random(f"prefold demo {seed}")
    names = _tenant_names(rng, tenants)
    systems = [_system_prompt(rng, names[tenant], prefix_tokens) for tenant in range(tenants)]
    count = -(-requests // TURNS)
    tenant_of = [conversation % tenants for conversation in range(count)]
    turns = [_turns(rng, names[tenant_of[conversation]][1]) for conversation in range(count)]
    order = [conversation for conversation in range(count) for _ in range(TURNS)][:requests]
    rng.shuffle(order)
    started = [0] * count
    workload = []
    for conversation in order:
        turn = started[conversation]
        started[conversation] += 1
        system = {"role": "system", "content": systems[tenant_of[conversation]]}
        workload.append(
            Request(
                tenant=tenant_of[conversation],
                conversation=conversation,
                turn=turn,
                messages=(system, *turns[conversation][: 2 * turn + 1]),
            )
        )
    return tuple(workload)


_Product = tuple[str, str, str, str]


def _tenant_names(rng: random.Random, tenants: int) -> list[tuple[str, _Product]]:
    """(company, product) of each tenant; companies are all different."""
    companies = [first + second for first in _COMPANY_FIRST for second in _COMPANY_SECOND]
    rng.shuffle(companies)
    rounds, rest = divmod(tenants, len(companies))
    named = [f"{c} {n + 1}" for n in range(rounds) for c in companies] + [
        f"{c} {rounds + 1}" if rounds else c for c in companies[:rest]
    ]
    return [(name, rng.choice(_PRODUCTS)) for name in named]


def _system_prompt(rng: random.Random, name: tuple[str, _Product], tokens: int) -> str:
    company, product = name
    text = f"{company} runs a {product[0]} service, and you answer its customers."
    rules: list[str] = []
    while len(text) < tokens * CHARS_PER_TOKEN:
        if not rules:
            rules = rng.sample(_RULES, len(_RULES))
        text += " " + fill(rules.pop(), product, rng)
    return text


def products() -> tuple[_Product, ...]:
    return _PRODUCTS


def rules() -> tuple[str, ...]:
    """Sentences with blanks for `fill`."""
    return _RULES


def _turns(rng: random.Random, product: _Product) -> list[Message]:
    """User and assistant by turns, beginning and ending with the user."""
    questions = rng.sample(_QUESTIONS, TURNS)
    messages: list[Message] = []
    for question in questions:
        if messages:
            answer = fill(rng.choice(_ANSWERS), product, rng)
            messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": fill(question, product, rng)})
    return messages


def fill(template: str, product: _Product, rng: random.Random) -> str:
    _, item, place, person = product
    n, m = rng.randint(2, 9), rng.randint(11, 59)
    return template.format(item=item, place=place, person=person, n=n, m=m)
