"""The schemas in docs/schemas are those that the library returns."""

from __future__ import annotations

import json

import pytest

import metastore as ms
from tests.docs.examples import ROOT
from tests.docs.schemas import FOLDER, printed


def test_each_kind_is_printed_as_it_is() -> None:
    """After a change: ``python -m tests.docs.schemas``."""
    written = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    assert sorted(written) == sorted(printed())
    assert {name: json.loads(text) for name, text in written.items()} == {
        name: json.loads(text) for name, text in printed().items()
    }


def test_the_page_for_services_names_each() -> None:
    text = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")
    assert [name for name in printed() if f"(schemas/{name})" not in text] == []


@pytest.mark.parametrize("name", sorted(printed()))
def test_a_printed_schema_is_one(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == ms.json_schema(name.removesuffix(".json"))
