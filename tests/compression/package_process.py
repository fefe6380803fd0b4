"""Runs the package `llmlingua` as published, in a process of its own: it seeds every generator.

Reads {"model", "jobs": [{"texts", "seconds", ...options}]} on standard
input and writes, for each job, the words, which of them stay, the text, the times of its calls,
and the most memory that the process had up to then. A job is repeated for its `seconds`.
"""

import json
import resource
import sys
from typing import Any

from tests.compression.timing import repeated

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
    context, seconds = options.pop("texts"), options.pop("seconds", 0.0)
    result, times = repeated(
        lambda: compressor.compress_prompt_llmlingua2(
            context,
            return_word_label=True,
            word_sep=WORD_SEP,
            label_sep=LABEL_SEP,
            **options,
        ),
        seconds,
    )
    pairs = [one.split(LABEL_SEP) for one in result["fn_labeled_original_prompt"].split(WORD_SEP)]
    return {
        "words": [word for word, _ in pairs],
        "labels": [int(label) for _, label in pairs],
        "times": times,
        "prompt": result["compressed_prompt"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    main()
