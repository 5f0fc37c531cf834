"""docs/architecture.md draws the house as it stands: its folders exist, and its layers are those that are enforced."""

from __future__ import annotations

import re
import tomllib

from tests.docs.examples import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_AT_THE_ROOT = 17


def test_the_drawing_has_the_layers_that_are_enforced() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (direction,) = [contract for contract in contracts if contract["id"] == "direction"]
    enforced = [re.findall(r"\w+", layer) for layer in direction["layers"]]
    drawing = TEXT.split("```")[1].strip("\n").splitlines()
    drawn = [re.findall(r"\w+", line.strip().partition("  ")[0].lower()) for line in drawing]
    assert drawn == enforced


def test_each_folder_and_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:metastore|retry|migrations)/[\w/.]*)`", TEXT))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_each_folder_of_the_package_is_named() -> None:
    folders = {path.parent.name for path in (ROOT / "metastore").glob("*/__init__.py")}
    assert [name for name in sorted(folders - {"cli"}) if f"{name}/" not in TEXT] == []


def test_few_files_lie_at_the_root() -> None:
    assert len(list((ROOT / "metastore").glob("*.py"))) <= MOST_AT_THE_ROOT
