"""Log calls with the standard library, under ``metastore.operations``.

========  =====================================================================================
DEBUG     an attempt that lost, and to what; a call that another operation's commit decided
INFO      a call that was committed after more than one attempt
WARNING   a commit that took longer than SLOW; an answer that was lost, or a database that is away;
          a call that was given up
ERROR     a call whose outcome is unknown
========  =====================================================================================

Each record has the attributes ``operation_id`` and ``attempts``, and, if they are known, ``seconds`` and ``cause``. A
log line names a call by its verb, kind and path. It never shows a written value or a URL. For a call that succeeds at
once, the cost is one read of the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from metastore.retry.runner import Effort

SLOW: Final = 1.0
"""A call that takes longer than this is logged as slow (seconds)."""
_SICK: Final = ("lost", "unavailable")
"""Causes that lie in the database, not in other calls."""

_log = logging.getLogger("metastore.operations")
# without this handler, logging would print to the stderr of a program that has not set up logging
_log.addHandler(logging.NullHandler())


def _write(level: int, operation_id: UUID | None, attempts: int, text: str, **more: Any) -> None:
    extra = {"operation_id": operation_id and str(operation_id), "attempts": attempts, **more}
    _log.log(level, "%s (operation %s)", text, operation_id, extra=extra)


def lost(what: Callable[[], str], operation_id: UUID | None, number: int, cause: str, detail: str) -> None:
    """Log an attempt that lost."""
    level = logging.WARNING if cause in _SICK else logging.DEBUG
    if _log.isEnabledFor(level):
        _write(level, operation_id, number, f"{what()}: attempt {number} lost on {cause}: {detail}", cause=cause)


def done(what: Callable[[], str], operation_id: UUID | None, number: int, seconds: float) -> None:
    """Log a call that needed more than one attempt, or that took long."""
    if seconds > SLOW:
        text = f"{what()}: took {seconds:.3f} s, {number} attempts"
        _write(logging.WARNING, operation_id, number, text, seconds=seconds)
    elif number > 1 and _log.isEnabledFor(logging.INFO):
        text = f"{what()}: done after {number} attempts in {seconds:.3f} s"
        _write(logging.INFO, operation_id, number, text, seconds=seconds)


def helped(effort: Effort, number: int) -> None:
    """Log a call that another operation's commit decided."""
    if effort.helped is not None and _log.isEnabledFor(logging.DEBUG) and effort.helped():
        _write(logging.DEBUG, effort.operation_id, number, f"{effort.what()}: another operation's commit did it")


def gave_up(message: str, operation_id: UUID | None, number: int) -> None:
    """Log a call that was given up; the message says why it lost."""
    _write(logging.WARNING, operation_id, number, message)


def unknown(what: str, operation_id: UUID | None, number: int) -> None:
    """Log a call that may or may not have been applied."""
    _write(logging.ERROR, operation_id, number, f"{what}: its answer was lost, and the database cannot be asked")
