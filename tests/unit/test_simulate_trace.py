"""Traces: what a file must be, and what is made of its block ids."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from prefold.proxy.simulate.synthetic import BLOCK, WORKLOADS, SyntheticOptions, make_trace
from prefold.proxy.simulate.trace import Row, Trace, TraceError, build_trace, read_mooncake

GOOD = {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}


def written(folder: Path, *lines: dict[str, Any], name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def keys(trace: Trace) -> list[list[int]]:
    return [list(request.prefix.chain(trace.block_tokens)) for request in trace.requests]


def trace_of(*prompts: list[int]) -> Trace:
    """Blocks of 10 tokens, a request a second."""
    rows = [
        Row(float(second), len(blocks) * 10, 1, blocks) for second, blocks in enumerate(prompts)
    ]
    return build_trace("test", 10, rows)


def test_reads_lengths_times_and_full_blocks(tmp_path: Path) -> None:
    """Milliseconds become seconds from the first arrival; a partial last block has no key."""
    path = written(
        tmp_path,
        {"timestamp": 3000, "input_length": 1024, "output_length": 7, "hash_ids": [4, 5]},
        {"timestamp": 2500, "input_length": 600, "output_length": 0, "hash_ids": [4, 6]},
    )

    trace = read_mooncake(path)

    assert [request.arrival_s for request in trace.requests] == [0.0, 0.5]
    assert [request.prompt_tokens for request in trace.requests] == [600, 1024]
    assert [request.output_tokens for request in trace.requests] == [0, 7]
    assert [len(chain) for chain in keys(trace)] == [1, 2]
    assert keys(trace)[0][0] == keys(trace)[1][0]
    assert (trace.duration_s, trace.prompt_tokens) == (0.5, 1624)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_reads_compressed_files(tmp_path: Path, suffix: str, compress: Any) -> None:
    """A trace is the same whether it is compressed or not."""
    plain = written(tmp_path, GOOD)
    packed = tmp_path / f"trace.jsonl{suffix}"
    packed.write_bytes(compress(plain.read_bytes()))

    assert keys(read_mooncake(packed)) == keys(read_mooncake(plain))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({**GOOD, "hash_ids": [1, 2, 3]}, "3 hash_ids for 1000 tokens in blocks of 512"),
        ({**GOOD, "input_length": "many"}, r"Expected `int`, got `str` - at `\$.input_length`"),
        ({**GOOD, "input_length": 0, "hash_ids": []}, "nor a prompt empty"),
        ({**GOOD, "timestamp": -1}, "must not be negative"),
        ({"timestamp": 0}, "missing required field `input_length`"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: dict[str, Any], problem: str) -> None:
    """The error tells file, line and what is wrong with it."""
    with pytest.raises(TraceError, match=f"trace.jsonl, line 2: .*{problem}"):
        read_mooncake(written(tmp_path, GOOD, line))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "line 1: "),
        (b"\xff\n", "line 1: "),
        (b"\n  \n", "no requests"),
        (b"", "no requests"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    """Broken JSON, other encodings, and files without requests."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=problem):
        read_mooncake(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, suffix: str) -> None:
    """It is an error of the trace, not a traceback."""
    path = tmp_path / f"trace.jsonl{suffix}"
    path.write_bytes(b"plain")

    with pytest.raises(TraceError, match=r"trace\.jsonl"):
        read_mooncake(path)


def test_a_cut_archive_is_an_error(tmp_path: Path) -> None:
    """What was read before the cut is not taken for the whole."""
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode() + b"\n")[:-8])

    with pytest.raises(TraceError, match=r"trace\.jsonl\.gz"):
        read_mooncake(path)


def test_an_id_counts_only_with_all_before_it() -> None:
    """Equal blocks after different beginnings are different prefixes."""
    one, other = keys(trace_of([1, 9], [2, 9]))

    assert one[1] != other[1]


def test_the_opening_is_the_first_block_that_not_most_prompts_share() -> None:
    """A common system prompt says nothing of a prompt; one shorter than that is like no other."""
    trace = trace_of([7, 1], [7, 1, 4], [7, 2], [7], [7])
    one, same, other, short, shorter = [request.opening for request in trace.requests]

    assert one == same
    assert len({one, other, short, shorter}) == 4


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workloads_come_from_their_seed(workload: str) -> None:
    """The same seed gives the same requests in order of arrival, another one others."""
    options = SyntheticOptions(requests=200, seed=3)
    trace = make_trace(workload, options)
    arrivals = [request.arrival_s for request in trace.requests]

    assert len(arrivals) == 200
    assert arrivals == sorted(arrivals)
    assert all(
        len(chain) == request.prompt_tokens // BLOCK
        for chain, request in zip(keys(trace), trace.requests, strict=True)
    )
    assert keys(make_trace(workload, options)) == keys(trace)
    assert keys(make_trace(workload, SyntheticOptions(requests=200, seed=4))) != keys(trace)


def test_a_conversation_repeats_all_before_it() -> None:
    """Every later turn begins with all blocks of an earlier prompt."""
    chains = keys(make_trace("conversations", SyntheticOptions(requests=100)))
    firsts = {chain[4] for chain in chains}  # after a system prompt of 4 blocks
    ends = {chain[-1] for chain in chains}
    later = [chain for chain in chains if any(key in ends for key in chain[:-1])]

    assert len(later) == len(chains) - len(firsts) > 0


def test_unique_prompts_share_nothing() -> None:
    """No block comes twice."""
    chains = keys(make_trace("unique", SyntheticOptions(requests=50)))
    blocks = [key for chain in chains for key in chain]

    assert len(set(blocks)) == len(blocks)
