"""``run.json``: the description of the run in a record folder."""

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
    """Raise InvalidArgument if ``folder`` already has a run, or is not a folder."""
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is not a folder: choose another, --out")
    if any((folder / name).exists() for name in ("run.json", "log", "operations", "meeting")):
        raise InvalidArgument(f"{folder} has a run already: choose another folder, --out, or remove it")


def facts(url: str, scenario: str, parameters: dict[str, Any], clock: Clock, **more: Any) -> dict[str, Any]:
    """Return the description of a run, without secrets."""
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


def write_facts(folder: Path, values: dict[str, Any]) -> None:
    """Write ``run.json`` atomically."""
    path = folder / "run.json"
    path.with_name(".run.json").write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_name(".run.json").replace(path)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
