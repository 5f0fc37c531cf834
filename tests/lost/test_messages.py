"""Whatever message is lost, a call that returns is done once, and one that says that nothing was written wrote nothing.

OutcomeUnknown is the third answer: ``outcome`` knows what came of it, and a repeat with its id makes it once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bad_input.surface import EVERY
from tests.combine.gate import always_together
from tests.lost.calls import CALLS, OTHERS, READS
from tests.lost.world import WAYS, Way, World, opened, wrong
from tests.servers.postgres import Databases


@pytest.fixture(
    scope="module",
    params=["sync", pytest.param("in batches", marks=pytest.mark.long), pytest.param("async", marks=pytest.mark.long)],
)
def world(
    request: pytest.FixtureRequest,
    postgres_databases: Databases,
    postgres_template: str,
    postgres_address: tuple[str, int],
) -> Iterator[World]:
    """Open one world for all calls: each has a lake of its own."""
    url = postgres_databases.create_database(template=postgres_template.rpartition("/")[2])
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in batches":
            always_together(patch)
        with opened(url, postgres_address, asynchronous=request.param == "async") as made:
            yield made
    postgres_databases.drop_database(url)


def test_every_method_that_writes_has_a_line() -> None:
    tried = {name.split(",")[0].rpartition(".")[2] for name in CALLS}
    there = {method.name for method in EVERY}
    assert there - tried - READS == set(OTHERS)
    assert not READS - there
    assert not tried & (READS | set(OTHERS))


@pytest.mark.one_in(11)
@pytest.mark.parametrize("way", [*WAYS[:-1], pytest.param(WAYS[-1], marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CALLS)
def test_told(world: World, name: str, way: Way) -> None:
    world.tried(name)  # the process remembers what it reads once
    whole = world.tried(name)
    assert whole is not None
    assert whole.error is None
    lost = 0
    while told := world.tried(name, lost + 1, way):
        lost += 1
        assert not wrong(name, whole, told), (lost, told.again, told, whole)
    assert lost >= 1
