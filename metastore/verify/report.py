"""The result of a check as a file, which the console shows.

It is a file, not a row, because a check writes nothing to the database. So a check can read a replica or a backup, and
its result does not depend on the database that it checks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from metastore.errors import InvalidArgument
from metastore.verify.violations import Violation

__all__ = ["Report", "read_report", "write_report"]

_SHOWN: Final = 100
"""How many violations a report lists; it counts all of them."""
_LARGEST: Final = 1_000_000
"""The largest size of a report, in bytes."""


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    started: datetime
    seconds: float
    """The duration of the check."""
    position: str
    """The newest position of the feed before the check began."""
    count: int
    """The number of violations that it found."""
    violations: tuple[Violation, ...]
    """The first violations."""


def write_report(file: Path, report: Report) -> None:
    """Write a report. A reader sees the previous one or this one. Raises InvalidArgument if it cannot be written."""
    values = {**asdict(report), "started": report.started.isoformat()}
    values["violations"] = [asdict(one) for one in report.violations[:_SHOWN]]
    half = file.parent / f".{file.name}.new"  # with_name refuses a path without a name, such as /
    try:
        half.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8", errors="replace")
        half.replace(file)
    except OSError as error:
        with suppress(OSError):
            half.unlink()
        raise InvalidArgument(f"the report {file} cannot be written: {error.strerror}") from None


def read_report(file: Path) -> Report | None:
    """Return the report in a file; None: no file. Raises InvalidArgument for anything else."""
    try:
        with file.open("rb") as stream:
            values = json.loads(stream.read(_LARGEST))
        violations = _violations(values["violations"])
        started = datetime.fromisoformat(values["started"])
        return Report(started, float(values["seconds"]), str(values["position"]), int(values["count"]), violations)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidArgument(f"{file.name} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise InvalidArgument(f"{file.name} is not a report of metastore verify --report") from None


def _violations(rows: Sequence[dict[str, object]]) -> tuple[Violation, ...]:
    return tuple([Violation(**row) for row in rows[:_SHOWN]])  # type: ignore[arg-type]
