"""prefold: an OpenAI-compatible reverse proxy that makes LLM prefill cheap and proves by how much.

The subpackages are symlinks to the five folders at the repository root. Those folders hold no
`__init__.py` (they are namespace portions): a regular package called `compression` on the path
would hide Python 3.14's standard `compression` package, which `gzip` needs.
"""

__version__ = "0.1.0"
