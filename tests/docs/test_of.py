"""``make test-of`` knows every folder of the library, and every folder of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.of import OF_THE_WHOLE, TESTS, paths_of

ROOT = Path(__file__).resolve().parents[2]


def _folders(of: Path) -> set[str]:
    return {one.parent.name for one in of.glob("*/__init__.py")} | {one.parent.name for one in of.glob("*/test_*.py")}


def test_every_folder_has_its_tests() -> None:
    assert set(TESTS) == _folders(ROOT / "metastore")
    named = {one for of in TESTS.values() for one in of}
    assert named | OF_THE_WHOLE == _folders(ROOT / "tests")
    assert not named & OF_THE_WHOLE


def test_a_folder_is_found_by_its_name_or_path() -> None:
    assert paths_of("metastore/past/consumers.py") == paths_of("past") == ["tests/past", "tests/contract"]
    with pytest.raises(SystemExit, match="no folder of the library is called lake"):
        paths_of("lake")
