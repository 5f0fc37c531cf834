"""The tables of docs/governance.md say what the code does, privilege by privilege, operation by operation."""

from __future__ import annotations

import re

from metastore.governance.privileges import RELATIONS, REVEAL, needs_of, privileges
from metastore.kinds.registry import KINDS, OWNED_KINDS
from tests.docs.examples import ROOT

TEXT = (ROOT / "docs" / "governance.md").read_text(encoding="utf-8")


def _table(head: str) -> dict[str, list[str]]:
    """Return the rows of the table whose head begins so, by their first cell."""
    lines = TEXT[TEXT.index(f"| {head} |") :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {row[0].strip("`"): [cell.strip(" |") for cell in row[1:]] for row in rows}


def _words(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(\w+)`", cell))


def _built_in() -> list[str]:
    return [name for name in KINDS if type(KINDS[name]).__module__ == "metastore.kinds.kind"]


def test_each_privilege_and_where_it_can_be_granted() -> None:
    table = _table("privilege")
    others = set(KINDS) - set(_built_in())  # other tests of this process declare kinds, one of them ``secret``
    declared = {word for word in privileges() if word.split("_", 1)[1] in others} - {REVEAL}
    assert set(table) == set(privileges()) - declared
    for word, (cell,) in table.items():
        kinds = [kind for kind in privileges()[word] if kind in _built_in()]
        assert cell == ("any object" if kinds == _built_in() else ", ".join(kinds)), word


def test_what_each_operation_needs() -> None:
    table = _table("kind")
    assert list(table) == _built_in()
    for kind, cells in table.items():
        see, create, alter, drop, *rows = cells
        needs = needs_of(kind)
        assert _words(see) == needs.of("see"), kind
        assert _words(create) == needs.of("create"), kind
        assert _words(alter) == needs.of("alter"), kind
        assert needs.of("rename") == (() if kind in ("user", "group") else needs.of("alter")), kind
        assert needs.of("restore") == (() if kind in ("user", "group") else needs.of("drop")), kind
        for operation in ("drop", "purge", "enable", "disable"):
            assert _words(drop) == needs.of(operation), kind
        assert (alter == "an owner", drop == "an owner") == (not needs.alter, not needs.drop), kind
        found = dict(re.findall(r"(\w+): ((?:`\w+`(?: or )?)+)", rows[0] if rows else ""))
        assert {row: _words(cell) for row, cell in found.items()} == dict(needs.own), kind


def test_relations_and_moves() -> None:
    table = _table("relation")
    assert set(table) == set(RELATIONS)
    for name, (cell,) in table.items():
        assert RELATIONS[name] in (*_words(cell), "ownership" if "ownership" in cell else ""), name
    assert needs_of("table").of("move") == ()


def test_each_kind_of_row_that_has_a_privilege_exists() -> None:
    assert {row for kind in _built_in() for row in needs_of(kind).own} <= set(OWNED_KINDS)
