"""Which model a request means, and what it is told where that cannot be known."""

from __future__ import annotations

import pytest

from prefold.proxy.catalog import Catalog, ModelSource
from prefold.proxy.errors import BadRequest, ModelNotFound, NoBackendAvailable

CATALOG = Catalog({"m": ModelSource(aliases=("other",))})
