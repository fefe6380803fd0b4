"""pip install anthropic; python examples/anthropic_python.py"""

import os

from anthropic import Anthropic

client = Anthropic(
    base_url=os.environ.get("PREFOLD_URL", "http://127.0.0.1:8000"),  # without /v1
    api_key=os.environ.get("PREFOLD_KEY", "none"),
)
with client.messages.stream(
    model=os.environ.get("PREFOLD_MODEL", "smollm2"),
    system="You answer in one sentence.",
    messages=[{"role": "user", "content": "What is the capital of France?"}],
    max_tokens=32,
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    usage = stream.get_final_message().usage
print(f"\n{usage.input_tokens} input tokens, read from the cache: {usage.cache_read_input_tokens}")
