"""Write ``docs/schemas``, what ``ms.json_schema`` returns of each built-in kind: ``python -m tests.docs.schemas``."""

from __future__ import annotations

import json

import metastore as ms
from metastore.kinds.declared import Kind
from metastore.kinds.registry import KINDS, OWNED_KINDS
from tests.docs.examples import ROOT

__all__ = ["FOLDER", "printed"]

FOLDER = ROOT / "docs" / "schemas"


def printed() -> dict[str, str]:
    """Return the files of the folder by name. Kinds that tests or packages declare are not among them."""
    kinds = [*(name for name, kind in KINDS.items() if not isinstance(kind, Kind)), *OWNED_KINDS]
    return {f"{kind}.json": json.dumps(ms.json_schema(kind), indent=2) + "\n" for kind in kinds}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, text in printed().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
