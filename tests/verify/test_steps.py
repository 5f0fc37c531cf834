"""What a step may say of its place: every exclusive operation notes the name that it leaves, and nothing else does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from metastore.port.conditions import LIVE
from metastore.verify.steps import place_problems


@pytest.mark.parametrize(("shown", "found"), [(True, ["version 4 (alter) says that it took a name"]), (False, [])])
def test_an_alter_takes_no_name_unless_a_restore_put_it_there(shown: bool, found: list[str]) -> None:
    """The past begins with the restore of an export that does not say where its rows stood."""
    place = {"parent_id": 3, "name": "t", "fold": False, "state": LIVE, "family": "table", "key": "t"}
    path = {"path_before": "lake.c.s.t", "path_after": "lake.c.s.t", "owner_id": None, "other_id": None}
    step: Any = SimpleNamespace(version=4, entity_id=4, kind="table", action="alter", **place, **path)
    assert list(place_problems(step, None, complete=True, shown=shown)) == found
