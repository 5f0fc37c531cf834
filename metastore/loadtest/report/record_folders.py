"""Find the records of a run, or of a ramp."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from metastore.errors import InvalidArgument

__all__ = ["read_facts", "record_folders"]

_NUMBERED: Final = re.compile(r"clients-(\d+)")


def record_folders(folder: Path) -> tuple[Path, ...]:
    """Return ``folder`` if it holds the records of a run; otherwise its folders clients-<n> that do, ordered by n."""
    if (folder / "operations").is_dir():
        return (folder,)
    numbered = [
        (int(matched[1]), path) for path in folder.glob("clients-*") if (matched := _NUMBERED.fullmatch(path.name))
    ]
    folders = tuple([path for _, path in sorted(numbered) if (path / "operations").is_dir()])
    if not folders:
        raise InvalidArgument(f"no records in {folder}: expected operations/ or clients-<n>/operations/ in it")
    return folders


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the run's facts from ``run.json``; {} if there is none that can be read."""
    try:
        facts = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        return {}
    return {key: _without_secret(value) for key, value in facts.items()} if isinstance(facts, dict) else {}


def _without_secret(value: Any) -> Any:
    """Hide the password in a URL, in case there is one."""
    return re.sub(r"(://[^:/@\s]*):[^\s]*@", r"\1:***@", value) if isinstance(value, str) else value
