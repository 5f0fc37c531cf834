"""A replica may be behind a write that has returned: no cache is opened there."""

from __future__ import annotations

import pytest

import metastore as ms
from tests.progress.replica import Replica, primary


@pytest.mark.postgres
def test_a_replica_gets_no_cache() -> None:
    with primary() as leader:
        url = leader.create_database()
        ms.migrate(url)
        with Replica(leader) as replica:
            other = replica.url(url.rpartition("/")[2])
            with ms.open(other) as store:
                assert list(store.metalakes.list()) == []
            with pytest.raises(ms.InvalidArgument, match="replica"):
                ms.open(other, cache=ms.Cache("validate"))
