"""pip install openai; python examples/openai_python.py"""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("PREFOLD_URL", "http://127.0.0.1:8000") + "/v1",
    api_key=os.environ.get("PREFOLD_KEY", "none"),  # what `prefold key` printed, where keys are set
)
stream = client.chat.completions.create(
    model=os.environ.get("PREFOLD_MODEL", "smollm2"),
    messages=[
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "What is the capital of France?"},
    ],
    max_tokens=32,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage is not None:
        details = chunk.usage.prompt_tokens_details
        cached = details.cached_tokens if details else None
        print(f"\n{chunk.usage.prompt_tokens} prompt tokens, of which cached: {cached}")
