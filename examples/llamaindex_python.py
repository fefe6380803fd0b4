"""pip install llama-index-llms-openai-like; python examples/llamaindex_python.py"""

import os

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model=os.environ.get("PREFOLD_MODEL", "smollm2"),
    api_base=os.environ.get("PREFOLD_URL", "http://127.0.0.1:8000") + "/v1",
    api_key=os.environ.get("PREFOLD_KEY", "none"),
    is_chat_model=True,  # else it would write the chat as a text of its own, and share no prefix
    max_tokens=32,
)
messages = [
    ChatMessage(role="system", content="You answer in one sentence."),
    ChatMessage(role="user", content="What is the capital of France?"),
]
for chunk in model.stream_chat(messages):
    print(chunk.delta or "", end="", flush=True)
print()
