"""Admins are configuration: names that may do everything, and so begin."""

from __future__ import annotations

import pytest

import metastore as ms


def test_an_admin_begins(url: str) -> None:
    with ms.open(url, admins=("root@corp",)) as store:
        admin = store.as_user("root@corp")
        assert admin.metalakes.create("lake").created_by == "root@corp"
        assert store.allowed("root@corp", "create_catalog", "lake").because == ["root@corp is an admin of this process"]
        with pytest.raises(ms.PermissionDenied):
            store.as_user("ann@corp").metalakes.create("other")
    with pytest.raises(ms.InvalidArgument):
        ms.open(url, admins="root@corp")
