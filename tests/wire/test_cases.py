"""Every case through the real proxy process: a raw client first, then the official ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.requirements import skip_or_fail
from tests.wire.cases import Case, load_cases
from tests.wire.client_expectations import clients_of, wrong_in_client
from tests.wire.clients import NodeClients, NodeMissing, node_clients
from tests.wire.expectations import wrong_in_raw
from tests.wire.script import answer
from tests.wire.stage import Stage, staged

CASES = [case for case in load_cases() if "scenario" not in case.input]
SWEEPS = [case for case in CASES if "sweep" in case.input]
# The next generation of the Node client is played for docs/compatibility.md only.
BY_CLIENT = [(case, name) for case in CASES for name in clients_of(case) if name != "node7"]

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node() -> AsyncIterator[NodeClients | None]:
    try:
        async with node_clients() as clients:
            yield clients
    except NodeMissing:
        yield None


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(node: NodeClients | None) -> AsyncIterator[Stage]:
    async with staged(CASES, node) as stage:
        yield stage


@pytest.mark.parametrize("case", [c for c in CASES if c not in SWEEPS], ids=lambda case: case.id)
async def test_raw(stage: Stage, case: Case) -> None:
    """Status, headers and bytes are as the case says, and so is what the upstream saw."""
    played = await stage.play_raw(case)

    assert wrong_in_raw(case, played) == [], case.rule


@pytest.mark.parametrize("case", SWEEPS, ids=lambda case: case.id)
async def test_cut_anywhere(stage: Stage, case: Case) -> None:
    """The body in two writes, cut at each of its offsets in turn: the same answer each time."""
    size = len(answer(case.input).payload)
    for offset in range(1, size):
        cut = answer({**case.input, "cut_at": offset})
        played = await stage.play_raw(case, cut.script)
        assert wrong_in_raw(case, played) == [], f"cut at {offset}: {case.rule}"


@pytest.mark.parametrize(
    ("case", "client"), BY_CLIENT, ids=[f"{case.id}-{client}" for case, client in BY_CLIENT]
)
async def test_client(stage: Stage, case: Case, client: str) -> None:
    """The official client sees what the case says: the text and the finish, or an error."""
    if stage.node is None and client in ("node", "node7", "ai"):
        skip_or_fail("node and npm are not here; install them: apt-get install nodejs npm")
    seen = await stage.play_client(case, client)

    assert wrong_in_client(case, client, seen) == [], case.rule


async def test_nothing_is_left(stage: Stage) -> None:
    """After all of it no request counts as in flight, and the two sets of books agree."""
    assert await stage.proxy.total("prefold_in_flight_requests") == {"": 0}
    counted = await stage.proxy.total("prefold_requests_total", "outcome")
    assert counted == await stage.proxy.outcomes()
