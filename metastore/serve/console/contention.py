"""Contention, for admins: which calls wait for which others now. The page is live; ``gauges`` has the figures."""

from __future__ import annotations

from metastore.errors import PermissionDenied
from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.words import command

__all__ = ["contention"]


def contention(asked: Asked) -> Shown:
    """Return the figures of this moment. Raises PermissionDenied for users."""
    only_admins(asked, "see who waits for whom")
    return Shown("contention.html", "Contention", asked.gauges.values(), command("stats"))


def only_admins(asked: Asked, what: str) -> None:
    """Raise PermissionDenied for a user whose rights are checked and who is not an admin."""
    if asked.is_restricted:
        message = f"{asked.principal.name} may not {what}: a server names its admins with serve --admin USER"
        raise PermissionDenied(asked.principal.name, "admin", "", message)
