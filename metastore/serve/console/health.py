"""Health, for admins: the database, this server, its connections, and the positions that are pinned."""

from __future__ import annotations

import platform

from metastore.clock import SYSTEM
from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.contention import only_admins
from metastore.serve.console.reports import last_loadtest, last_verify
from metastore.serve.console.words import command
from metastore.version import __version__

__all__ = ["health"]

_STARTED = SYSTEM.monotonic()


def health(asked: Asked) -> Shown:
    """Return the state of the database and of this server. Raises PermissionDenied for users."""
    only_admins(asked, "see the health of the database")
    store = asked.whole
    started = SYSTEM.monotonic()
    store.ping()
    took = (SYSTEM.monotonic() - started) * 1000
    seen = store.metrics()
    checked, wrong = last_verify(asked)
    values = {
        "database": repr(store)[7:-1],
        "took": took,
        "stats": store.stats(),
        "position": store.position(back=1),
        "version": __version__,
        "python": platform.python_version(),
        "host": platform.node(),
        "up": SYSTEM.monotonic() - _STARTED,
        "seen": seen,
        "checked": checked,
        "wrong": wrong,
        "loadtest": last_loadtest(asked),
        "has_reports": asked.reports is not None,
        "pins": store.pins()[:50],
    }
    return Shown("health.html", "Health", values, command("stats"))
