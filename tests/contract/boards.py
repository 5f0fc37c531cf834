"""Two kinds that only these tests know: a board, in which notes stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import metastore as ms


@dataclass(frozen=True)
class AddPanel(ms.EntityChange, tag="tests.AddPanel"):
    """Add a panel; each has its own name."""

    name: str
    query: str

    def apply(self, doc: dict[str, Any], path: tuple[str, ...]) -> None:
        if any(panel["name"] == self.name for panel in doc["panels"]):
            raise ms.EntityAlreadyExists(".".join((*path, self.name)))
        doc["panels"].append({"name": self.name, "query": self.query})


@dataclass(frozen=True)
class SetOwner(ms.EntityChange, tag="tests.SetOwner"):
    """Say whose it is."""

    owner: str

    def apply(self, doc: dict[str, Any], path: tuple[str, ...]) -> None:
        doc["owner"] = self.owner


def panels(given: Any) -> list[dict[str, str]]:
    """Check what is given as panels."""
    if not all(isinstance(panel, dict) and set(panel) == {"name", "query"} for panel in given):
        raise ms.InvalidArgument("a panel has a name and a query")
    return list(given)


BOARD = ms.Kind(
    "board",
    fields={"owner": str, "panels": ms.Field(panels, default=[]), "width": ms.Field(int, default=12)},
    changes=(AddPanel, SetOwner),
    container=True,
)
NOTE = ms.Kind("note", parent="board", fields={"text": ms.Field(str, default="")})
