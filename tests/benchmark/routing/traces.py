"""Workloads from public traces: Mooncake's conversation trace, whose prompts are made up from the
ids of their blocks, and LMCache's agent trace, which holds the texts themselves."""

from __future__ import annotations

import json
import random
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from prefold.prefix_index.prefix import Prefix
from prefold.proxy.simulate.trace import MOONCAKE_BLOCK, Request, read_mooncake
from tests.benchmark.routing.workload import Prompt, Workload, interleaved, prose

ANSWER_TOKENS = 16
"""At most: the subject is prefill."""


def mooncake(path: Path, *, requests: int, most_tokens: int, seed: int) -> Workload:
    """A sample by conversation: random ones are taken whole until there are `requests`, in the
    trace's order. What conversations share with each other stays in proportion to what they keep
    for themselves. Prompts of more than `most_tokens` are left out first. Raises TraceError."""
    trace = read_mooncake(path)
    short = [each for each in trace.requests if each.prompt_tokens <= most_tokens]
    size = Counter(each.opening for each in short)
    openings = sorted(size)
    random.Random(f"mooncake {seed}").shuffle(openings)
    taken: set[int] = set()
    count = 0
    for opening in openings:
        if count >= requests:
            break
        taken.add(opening)
        count += size[opening]
    sample = [each for each in short if each.opening in taken][:requests]
    texts: dict[int, str] = {}
    return Workload(
        "mooncake",
        f"{len(taken)} conversations of {len(openings)}, with prompts up to {most_tokens} tokens;"
        f" a block of {MOONCAKE_BLOCK} tokens is as many words, the same for the same block",
        [_prompt(each, number, texts) for number, each in enumerate(sample)],
    )


def _prompt(request: Request, number: int, texts: dict[int, str]) -> Prompt:
    blocks = _keys(request.prefix)
    for key in blocks:
        if key not in texts:
            texts[key] = prose(f"block {key}", MOONCAKE_BLOCK)
    rest = request.prompt_tokens - len(blocks) * MOONCAKE_BLOCK
    words = " ".join([*(texts[key] for key in blocks), prose(f"rest {number}", rest)])
    return Prompt(words, max(1, min(request.output_tokens, ANSWER_TOKENS)))


def _keys(prefix: Prefix) -> Sequence[int]:
    return prefix.chain(MOONCAKE_BLOCK)


def agents(
    path: Path,
    *,
    sets: Sequence[str],
    most_chars: int,
    at_work: int,
    requests: int,
    seed: int,
    answer_tokens: int = ANSWER_TOKENS,
) -> Workload:
    """`path`: the trace's folder, or a tar file of it. Empty and longer prompts are left out, and
    sessions are taken in a random order. Raises OSError."""
    sessions = []
    for raw in _session_files(path, sets):
        inputs = [json.loads(line)["input"] for line in raw.splitlines() if line.strip()]
        sessions.append([text for text in inputs if 0 < len(text) <= most_chars])
    random.Random(f"agents {seed}").shuffle(sessions)
    taken = interleaved(sessions, at_work, requests, seed)
    return Workload(
        "agents",
        f"{' and '.join(sets)}, prompts up to {most_chars} characters, {at_work} sessions at once",
        [Prompt(text, answer_tokens) for text in taken],
    )


def _session_files(path: Path, sets: Sequence[str]) -> Iterator[bytes]:
    """The contents of the sets' files, in the order of their names."""
    if path.is_dir():
        for name in sets:
            for file in sorted((path / name).glob("*.jsonl")):
                yield file.read_bytes()
        return
    with tarfile.open(path) as archive:
        members = {member.name: member for member in archive.getmembers() if member.isfile()}
        for name in sets:
            for member in sorted(each for each in members if each.startswith(f"{name}/")):
                opened = archive.extractfile(members[member])
                assert opened is not None
                yield opened.read()
