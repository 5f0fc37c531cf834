"""The table of errors in docs/services.md says what the classes say."""

from __future__ import annotations

import re

import metastore as ms
from metastore import errors
from tests.docs.examples import ROOT

_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| (?:(\d+) s )?\|$", re.MULTILINE)


def test_the_table_of_errors() -> None:
    written = {name: row for name, *row in _ROW.findall((ROOT / "docs" / "services.md").read_text(encoding="utf-8"))}
    classes = {name: getattr(ms, name) for name in errors.__all__ if name != "MetastoreError"}
    assert written == {
        name: [cls.code, str(cls.http_status), "" if cls.retry_after is None else f"{cls.retry_after:g}"]
        for name, cls in classes.items()
    }
