"""These tests need torch: `make test-compression` installs it in an environment of its own."""

from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind with random weights, by the name of its kind."""
    from tests.compression.tiny_models import (
        bert_folder,
        llama_folder,
        modern_bert_folder,
        xlm_folder,
    )

    folder = tmp_path_factory.mktemp("models")
    return {
        "bert": bert_folder(folder),
        "xlm": xlm_folder(folder),
        "modernbert": modern_bert_folder(folder),
        "llama": llama_folder(folder),
    }
