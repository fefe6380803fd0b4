"""pip install langchain-openai; python examples/langchain_python.py"""

import os

from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model=os.environ.get("PREFOLD_MODEL", "smollm2"),
    base_url=os.environ.get("PREFOLD_URL", "http://127.0.0.1:8000") + "/v1",
    api_key=os.environ.get("PREFOLD_KEY", "none"),
    max_tokens=32,
    stream_usage=True,
)
prompt = [("system", "You answer in one sentence."), ("user", "What is the capital of France?")]
usage = None
for chunk in model.stream(prompt):
    print(chunk.content, end="", flush=True)
    usage = chunk.usage_metadata or usage
print(f"\nusage: {usage}")
