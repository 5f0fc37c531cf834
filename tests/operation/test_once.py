"""The happy path, counted: how many functions of ours a warm alter calls, and how deep in each other."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import metastore as ms

_FOLDER = str(Path(ms.__file__).parent)
_CALLS = 130
_DEPTH = 19


def test_a_warm_alter_is_short(postgres_url: str) -> None:
    calls, deepest = 0, 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls, deepest
        if event == "call" and _is_ours(frame):
            calls += 1
            deepest = max(deepest, sum(map(_is_ours, _around(frame))))

    with ms.open(postgres_url) as store:
        store.metalakes.create("l")
        store.catalogs.create("l.c", type="relational")
        store.schemas.create("l.c.s")
        table = store.tables.create("l.c.s.t", columns=[ms.Column(f"c{n}", "long") for n in range(10)])
        for n in range(20):  # its statements are prepared, and what is remembered is
            table = store.tables.alter(table, ms.SetComment(f"before {n}"))
        sys.setprofile(count)
        try:
            store.tables.alter(table, ms.SetComment("counted"))
        finally:
            sys.setprofile(None)
    assert 0 < calls <= _CALLS
    assert 0 < deepest <= _DEPTH


def _around(frame: FrameType | None) -> list[FrameType]:
    frames = list[FrameType]()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_FOLDER)
