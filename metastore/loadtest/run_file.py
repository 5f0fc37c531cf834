"""``run.json``: what a record folder is of."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from metastore.clock import Clock
from metastore.errors import InvalidArgument
from metastore.urls import parse_url, redacted

__all__ = ["check_new", "facts", "write_facts"]


def check_new(folder: Path) -> None:
    """Raise InvalidArgument if there is a run in ``folder`` already, or it cannot be one."""
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is no folder: choose another, --out")
    if any((folder / name).exists() for name in ("run.json", "log", "operations", "meeting")):
        raise InvalidArgument(f"{folder} has a run already: choose another folder, --out, or remove it")


def facts(url: str, scenario: str, parameters: dict[str, Any], clock: Clock, **more: Any) -> dict[str, Any]:
    """Return what a run is of: no secret is in it."""
    return {
        "scenario": scenario,
        "parameters": parameters,
        **more,
        "started": datetime.fromtimestamp(clock.micros() / 1e6, UTC).isoformat(timespec="milliseconds"),
        "url": redacted(parse_url(url)),
        "versions": {
            "metastore": _version("versioned-metastore"),
            "spark": _version("pyspark"),
            "python": platform.python_version(),
        },
    }


def write_facts(folder: Path, found: dict[str, Any]) -> None:
    """Write ``run.json``, whole or not at all."""
    path = folder / "run.json"
    path.with_name(".run.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_name(".run.json").replace(path)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
