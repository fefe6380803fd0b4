"""Runs the package `llmlingua` as published, in a process of its own: it seeds every generator.

Reads {"model", "jobs": [{"text", ...options of compress_prompt_llmlingua2}]} on standard input and
writes, for each job, the words, which of them stay, the text, the seconds it took on the
clock and of the CPU, and the most memory that the process had up to then.
"""

import json
import resource
import sys
import time
from typing import Any

WORD_SEP, LABEL_SEP = "\x01", "\x02"


def main() -> None:
    from llmlingua import PromptCompressor

    request = json.load(sys.stdin)
    compressor = PromptCompressor(
        request["model"],
        device_map="cpu",
        use_llmlingua2=True,
        model_config={"trust_remote_code": False, "local_files_only": True},
        llmlingua2_config={"max_batch_size": 50},
    )
    json.dump([run(compressor, job) for job in request["jobs"]], sys.stdout)


def run(compressor: Any, job: dict[str, Any]) -> dict[str, Any]:
    options = dict(job)
    context = options.pop("texts")
    begun, spent = time.perf_counter(), time.process_time()
    result = compressor.compress_prompt_llmlingua2(
        context,
        return_word_label=True,
        word_sep=WORD_SEP,
        label_sep=LABEL_SEP,
        **options,
    )
    seconds, cpu = time.perf_counter() - begun, time.process_time() - spent
    pairs = [one.split(LABEL_SEP) for one in result["fn_labeled_original_prompt"].split(WORD_SEP)]
    return {
        "words": [word for word, _ in pairs],
        "labels": [int(label) for _, label in pairs],
        "seconds": seconds,
        "cpu_seconds": cpu,
        "prompt": result["compressed_prompt"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    main()
