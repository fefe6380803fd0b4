"""Our `llmlingua2` beside the package `llmlingua`: same model, texts and options, in one run.

    make bench-compression ARGS="--quick"

Random weights in the shapes of the published models, on this machine's CPU. The package runs in a
process of its own and gets all documents of a cell in one call, which is where it batches best;
"one by one" is how a server has to call it for requests of different users. Each way is called
until --seconds are over: p99 of fewer than 100 calls is the slowest of them. `equal` is the share
of words on which our mode `reference` and the package decide alike; `int8 as fp32` the same for our
mode `stable` in the two precisions, and random weights are hard on it: scores lie close together.
On a machine with other load, compare tokens a CPU second (--cpu), with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compression.bench_cell import Cell, Ways, measured, open_ways
from tests.compression.tiny_models import (
    BERT_BASE,
    TINY,
    XLM_BASE,
    XLM_LARGE,
    bert_folder,
    xlm_folder,
)

SHAPES: dict[str, Callable[[Path], Path]] = {
    "tiny": lambda folder: bert_folder(folder, shape=TINY),
    "bert-base": lambda folder: bert_folder(folder, shape=BERT_BASE),
    "xlm-base": lambda folder: xlm_folder(folder, shape=XLM_BASE),
    "xlm-large": lambda folder: xlm_folder(folder, shape=XLM_LARGE),
}
QUICK = ("1x20", "8x20", "1x200", "8x200", "1x2000")
LONG = ("1x20", "8x20", "32x20", "1x200", "8x200", "32x200", "1x2000", "8x2000", "32x2000")
LONGEST = ("1x16000", "8x16000")
CELLS = {"tiny": QUICK, "bert-base": LONG + LONGEST, "xlm-base": ("8x200", "8x2000")}
COLUMNS = ("package", "reference", "stable", "int8")


def main() -> None:
    options = _arguments()
    rows: list[dict[str, Any]] = []
    unit = "tokens_per_cpu_s" if options.cpu else "tokens_per_s"
    for shape in options.shape:
        with tempfile.TemporaryDirectory() as folder:
            rows += _rows(shape, SHAPES[shape](Path(folder)), options)
    report = {"machine": _machine(), "rows": rows}
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(json.dumps(report["machine"]))
    print("\n".join(_table(rows, unit)))


def _rows(shape: str, model: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    ways: Ways = open_ways(model)
    rows = []
    for cell in options.cells or CELLS.get(shape, ("8x200",)):
        rows.append({"shape": shape, **measured(ways, Cell.of(cell), options.seconds)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _table(rows: list[dict[str, Any]], unit: str) -> list[str]:
    """In Markdown: tokens a second of each way, in brackets how often the package's."""
    head = ["shape", "documents x tokens", "one by one", *COLUMNS, "equal", "int8 as fp32"]
    lines = ["| " + " | ".join([*head, "p50, p99 of package, stable, int8 (s)", "calls"]) + " |"]
    lines.append("|---" * (len(head) + 2) + "|")
    for row in rows:
        base = row["package"][unit]
        cells = [row["shape"], f"{row['documents']} x {row['tokens']:,}"]
        cells.append(f"{row['one by one'][unit]:,.0f}" if row["one by one"] else "-")
        for name in COLUMNS:
            way = row[name]
            cells.append(f"{way[unit]:,.0f} ({way[unit] / base:.1f})" if way else "-")
        cells += [str(row["equal"]), str(row["int8_as_fp32"])]
        ways = [row[name] for name in ("package", "stable", "int8") if row[name]]
        cells.append("; ".join(f"{way['p50_s']:.3f}, {way['p99_s']:.3f}" for way in ways))
        cells.append(", ".join(str(way["calls"]) for way in ways))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _machine() -> dict[str, Any]:
    import torch
    import transformers

    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small cells, one call of each way")
    parser.add_argument("--shape", choices=SHAPES, nargs="+", default=["bert-base", "xlm-base"])
    parser.add_argument(
        "--cells", nargs="+", metavar="DOCUMENTSxTOKENS", help="in place of each shape's own"
    )
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="of each way and cell; one call at least"
    )
    parser.add_argument("--cpu", action="store_true", help="the table is of tokens a CPU second")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.shape, options.cells, options.seconds = ["bert-base"], QUICK, 0.0
    return options


if __name__ == "__main__":
    main()
