"""Ten questions on three of five documents each: python rag.py RUN ["HEADER: VALUE" ...]"""

import os
import random
import sys
from pathlib import Path

from openai import OpenAI

run, *headers = sys.argv[1:]
# Your documents, and further down your retriever, go here.
texts = [" ".join(text.split()) for text in Path("LICENSE").read_text().split("\n\n")]
documents = [text for text in texts if 100 < len(text) < 180][:5]
client = OpenAI(
    base_url=os.environ.get("PREFOLD_URL", "http://127.0.0.1:8000") + "/v1", api_key="none"
)
chance = random.Random(1)
prompt = cached = 0
for number in range(10):
    found = chance.sample(documents, 3)
    context = "\n".join(f"<document>{text}</document>" for text in found)
    answer = client.chat.completions.with_raw_response.create(
        model=os.environ.get("PREFOLD_MODEL", "smollm2"),
        messages=[
            # Each run's prompts begin differently: none finds what another left in the caches.
            {"role": "system", "content": f"Answer from the documents ({run})."},
            {"role": "user", "content": f"{context}\nQuestion {number}: who may do what?"},
        ],
        max_tokens=2,
        extra_headers=dict(header.split(": ", 1) for header in headers),
    )
    usage = answer.parse().usage
    assert usage is not None
    details = usage.prompt_tokens_details
    if details is None or details.cached_tokens is None:
        sys.exit("the engine does not report cached tokens: see prefold check")
    prompt += usage.prompt_tokens
    cached += details.cached_tokens
    if number == 1:
        print("documents:", answer.headers.get("X-Prefold-Documents"))
        print("compression:", answer.headers.get("X-Prefold-Compression"))
print(f"{run}: {cached} of {prompt} prompt tokens were cached, {prompt - cached} computed")
