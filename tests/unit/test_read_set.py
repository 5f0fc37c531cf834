"""Which locks the commit of a transaction takes for what the transaction has read."""

from __future__ import annotations

from uuid import UUID

import pytest

from metastore.port.conditions import Absent, Children, Guard, Listing, Newest, Read
from metastore.transaction.reads import ReadSet

OPERATION, PARENT = UUID(int=1), 7
LISTING = Listing(PARENT, "table", frozenset({(9, 1)}))
CHILDREN = Children(PARENT, frozenset(), there=False)
NEWEST = Newest(PARENT, "table", "table", "t", None)


def guards_of(reads: ReadSet) -> set[Guard]:
    return set(reads.commit(OPERATION, None, (), lambda _: "table").guards)


@pytest.mark.parametrize(
    ("reads", "read"),
    [
        (ReadSet(absent={Absent(PARENT, "table", "t")}), Absent(PARENT, "table", "t")),
        (ReadSet(absent={Absent(PARENT, "partition", "p", True)}), Absent(PARENT, "partition", "p", True)),
        (ReadSet(listings={(PARENT, "table", False, 0): LISTING}), LISTING),
        (ReadSet(children={CHILDREN}), CHILDREN),
        (ReadSet(newest={NEWEST}), NEWEST),
    ],
    ids=["name", "owned name", "listing", "children", "newest"],
)
def test_what_was_not_there_is_looked_for_again_while_nothing_is_written_below(reads: ReadSet, read: Read) -> None:
    """A writer below the parent holds a shared guard: a check beside it would not see the row that it inserts."""
    reads.guards |= {1: 4, PARENT: 5}
    assert guards_of(reads) == {Guard(1, 4), Guard(PARENT, 5, exclusive=True)}
    assert read in reads.commit(OPERATION, None, (), lambda _: "table").reads


def test_rows_that_were_read_leave_the_writers_beside_them_alone() -> None:
    reads = ReadSet(guards={1: 4, PARENT: 5}, entities={9: 2})
    assert guards_of(reads) == {Guard(1, 4), Guard(PARENT, 5)}
