"""A call is made again while the settings of its catalog change, and not past its deadline."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

import metastore as ms
from metastore.kinds.registry import KINDS
from metastore.managers.secrets.sealing import sealed_call
from metastore.operation.seals import Stale


def test_a_call_ends_although_its_catalog_changes_for_ever() -> None:
    with ms.open("memory://", deadline=0.2) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True)
        calls = 0

        def call(_: Any) -> NoReturn:
            nonlocal calls
            calls += 1
            assert calls < 1_000_000, "it goes on for ever"
            raise Stale

        with pytest.raises(ms.DeadlineExceeded, match="nothing was applied"):
            sealed_call(store._session, KINDS["table"], "lake.c.s.t", call)
        assert calls > 1
