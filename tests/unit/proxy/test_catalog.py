"""Which model a request means, and what it is told where that cannot be known."""

from __future__ import annotations

import pytest

from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.errors import BadRequest, ModelNotFound, NoBackendAvailable


@pytest.fixture
async def catalog() -> ModelCatalog:
    return ModelCatalog({}, {"alias": "m"}, memo_bytes=1, inline_chars=1)


async def test_a_name_and_an_alias_mean_the_served_model(catalog: ModelCatalog) -> None:
    """Without a name, the only one that is served."""
    assert catalog.resolve("m", ["m", "n"]) == "m"
    assert catalog.resolve("alias", ["m", "n"]) == "m"
    assert catalog.resolve(None, ["m"]) == "m"


async def test_a_wrong_name_is_told_where_the_right_ones_are(catalog: ModelCatalog) -> None:
    """It is not quoted: it is the client's text."""
    with pytest.raises(ModelNotFound, match="GET /v1/models") as error:
        catalog.resolve("mm", ["m"])

    assert "mm" not in str(error.value)
    with pytest.raises(BadRequest, match="must provide a model"):
        catalog.resolve(None, ["m", "n"])


@pytest.mark.parametrize("name", ["m", "alias", None])
async def test_no_model_is_denied_before_any_is_known(
    catalog: ModelCatalog, name: str | None
) -> None:
    """A 404 is final to clients; a 503 they try again, and by then a backend may have come up."""
    with pytest.raises(NoBackendAvailable):
        catalog.resolve(name, [])
