"""One request of the console: its user, the store as this user sees it, and the moment that the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

from metastore.cached import cached_property
from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded, EntityNotFound, InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS
from metastore.managers.all import Managers
from metastore.names import format_path, parse_path
from metastore.serve.console.words import now
from metastore.serve.principals import Principal
from metastore.store import Store
from metastore.store.views import UserStore

if TYPE_CHECKING:
    from metastore.serve.console.gauges import Gauges
    from metastore.serve.console.snapshots import Snapshots

__all__ = ["Asked", "Several", "Shown", "bounded", "moment", "url"]

T = TypeVar("T")

_POSITION: Final = re.compile(r".*-[0-9a-f]{16}([0-9a-f]{8})?")
_AGO: Final = re.compile(r"(\d{1,6})\s*(second|minute|hour|day|week)s?(\s+ago)?")
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


class Several(Exception):
    """Several kinds have an entity at this path, so the user must choose one."""

    def __init__(self, found: list[Entity]) -> None:
        super().__init__("several kinds share this path")
        self.found = found


@dataclass(frozen=True)
class Shown:
    """A page's answer: a template and its values."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    """The command of the command line that shows the same."""
    status: int = 200


@dataclass(frozen=True)
class Asked:
    """One request."""

    page: str
    query: Mapping[str, str]
    principal: Principal
    store: Store
    """The store as the user sees it."""
    whole: Store
    """The store without checks of rights, for positions of the feed and for the admins' pages."""
    gauges: Gauges
    """This server's counts of the last minutes."""
    files: Snapshots
    """Reads the metadata files of Iceberg tables."""
    reports: Path | None = None
    """The folder with the reports of checks and load tests; None: no folder was given."""
    signed_in: bool = False
    """Whether the browser has a session, which it can end here."""

    @cached_property
    def is_restricted(self) -> bool:
        """Whether the user's rights are checked, and it is not an admin."""
        return isinstance(self.store, UserStore)

    @cached_property
    def at(self) -> str | None:
        """The moment that the page shows, as the query spells it; None: now."""
        return self.query.get("at", "").strip() or None

    @cached_property
    def reader(self) -> Managers:
        """The managers for reading: the store's, or those of the moment ``at``. Raises InvalidArgument, HistoryGone."""
        if self.at is None:
            return self.store
        if self.is_restricted:
            raise InvalidArgument(
                "only admins may see the past, because the store knows only the present rights; "
                "the history of each object is on its page"
            )
        return self.store.at(moment(self.at))

    def text(self, key: str) -> str | None:
        """Return a parameter; None if it is missing or empty."""
        return self.query.get(key) or None

    def number(self, key: str, otherwise: int) -> int:
        """Return a parameter as a number. Raises InvalidArgument."""
        text = self.query.get(key, "").strip()
        if not text:
            return otherwise
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise InvalidArgument(f"{key} is a whole number, not {text[:40]!r}")
        return int(text)

    def entity(self) -> Entity:
        """Return the entity that the query names. Raises EntityNotFound, InvalidArgument, Several."""
        return self.found(self.query.get("path", ""), self.text("kind"))

    def found(self, path: str, kind: str | None) -> Entity:
        """Return the entity at a path. Raises EntityNotFound, InvalidArgument, Several."""
        names = parse_path(path)
        if kind is not None:
            loaded: Entity = self.reader.manager(kind).load(names)
            return loaded
        managers = [self.reader.manager(one.name) for one in KINDS.values() if families_of(one, len(names))]
        found: list[Entity] = [one for manager in managers if (one := manager.load_many([names])[0]) is not None]
        if len(found) > 1:
            raise Several(found)
        if found:
            return found[0]
        for manager in managers[:1]:
            manager.load(names)  # raises the precise error, such as DropPending
        raise EntityNotFound(format_path(names))

    def here(self, **changes: object) -> str:
        """Return the address of this page with other parameters; None removes one."""
        return url(self.page, **{**self.query, **changes})


def url(page: str, /, **parameters: object) -> str:
    """Return the address of a page, relative to the console, so that it works behind any prefix of a proxy."""
    given = {key: str(value) for key, value in parameters.items() if value is not None and value != ""}
    where = "./" if page == "place" else page
    return f"{where}?{urlencode(given, quote_via=quote)}" if given else where


def moment(text: str) -> str | datetime:
    """Return a position, or a time: ISO 8601 (without a time zone it is UTC), or "5 minutes ago".

    Raises InvalidArgument.
    """
    text = text.strip()
    if _POSITION.fullmatch(text):
        return text
    try:
        if matched := _AGO.fullmatch(text.lower()):
            return now() - timedelta(seconds=int(matched[1]) * _SECONDS[matched[2]])
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # OverflowError: before the year 1
        raise InvalidArgument(
            f"{text[:60]!r} is neither a position nor a time; write 2026-11-22T10:00 or 5 minutes ago"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def bounded(items: Iterable[T], most: int, seconds: float) -> tuple[list[T], bool]:
    """Return at most ``most`` items, read for at most ``seconds``, and whether there may be more."""
    ends = SYSTEM.monotonic() + seconds
    found: list[T] = []
    try:
        with until(ends):  # the time also ends while the iterator looks for its next item
            for one in items:
                if len(found) == most or SYSTEM.monotonic() > ends:
                    return found, True
                found.append(one)
    except DeadlineExceeded:
        return found, True
    return found, False
