"""Open a database as a store; restore one from an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from metastore.arguments import boolean, items, positive_seconds
from metastore.cache.options import Cache
from metastore.cache.store import check_cache
from metastore.clock import SYSTEM
from metastore.database import connect, replicas_of
from metastore.errors import InvalidArgument
from metastore.names import clean_name
from metastore.operation.request import Call
from metastore.port.backend import Backend
from metastore.retry.policy import Hook, RetryPolicy
from metastore.store.store import Store
from metastore.transfer.outcomes import Imported
from metastore.urls import Url, parse_url, require_file

if TYPE_CHECKING:
    from metastore.transfer.files import FileOrName
    from metastore.transfer.reader import Checked


__all__ = ["clean_admins", "open_store", "prepared", "restore", "restore_export"]

_DEADLINE = 30.0
"""The default of the longest time that a call may take (seconds)."""


def open_store(
    url: str | None = None,
    *,
    principal: str | None = None,
    deadline: float = _DEADLINE,
    hooks: Iterable[Hook] = (),
    pool_size: int = 10,
    max_wait: float | None = None,
    admins: Iterable[str] = (),
    cache: Cache | None = None,
    read_from: Iterable[str] = (),
    must_exist: bool = False,
) -> Store:
    """Open the database at ``url``, else at METASTORE_URL, else at ``sqlite:///metastore.db``.

    A SQLite database is migrated at opening. ``deadline`` (seconds) applies to each call. The store calls each hook
    with a frozen :class:`~metastore.retry.policy.Attempt` after every attempt of a mutation. ``pool_size`` is the
    largest number of connections that this store may have at once. ``max_wait`` is how long a call waits for one of
    them before it raises PoolExhausted (seconds; None: until its deadline). ``admins`` are names that may do everything
    through ``as_user``. ``cache`` has the options of the cache (None: no cache). ``read_from`` has the URLs of
    PostgreSQL's read replicas, one server each, for :meth:`Store.replica`. ``must_exist``: do not create a missing
    SQLite file. Raises MigrationNeeded, BackendUnavailable, InvalidArgument; BackendRefused if the role may not cache
    under a lease.
    """
    named = clean_admins(admins)
    check_cache(cache, url)
    if boolean(must_exist, "must_exist"):
        require_file(parse_url(url))
    parsed, backend, policy = prepared(url, principal, deadline, hooks, pool_size, max_wait)
    try:
        replicas = replicas_of(parsed, read_from, policy.deadline, pool_size=pool_size, max_wait=max_wait)
    except BaseException:
        backend.close()
        raise
    return Store(parsed, backend, policy, principal, SYSTEM, named, cache, replicas)


def clean_admins(admins: Iterable[str]) -> frozenset[str]:
    """Return the names of admins as a set. Raises InvalidArgument."""
    return frozenset(clean_name(name) for name in items(admins, "admins"))


def prepared(
    url: str | None,
    principal: str | None,
    deadline: float,
    hooks: Iterable[Hook],
    pool_size: int,
    max_wait: float | None,
) -> tuple[Url, Backend, RetryPolicy]:
    """Check the arguments of :func:`open_store`, and connect. Raises the errors of that function."""
    parsed = parse_url(url)
    Call(principal, positive_seconds(deadline, "a deadline"))
    called = tuple(items(hooks, "hooks"))
    if not all(callable(hook) for hook in called):
        raise InvalidArgument("hooks are functions, which are called with each attempt")
    policy = RetryPolicy(deadline=float(deadline), hooks=called)
    return parsed, connect(parsed, policy.deadline, pool_size=pool_size, max_wait=max_wait), policy


def restore(
    source: FileOrName | None, url: FileOrName | None = None, *, progress: Callable[[float], None] | None = None
) -> Imported:
    """Restore the database ``url`` (None: as for :func:`open_store`) from a file; the URL may also come first.

    An export with ids is imported into an empty database, as ``import_from`` does; an import that was stopped is
    continued. No store can open the database before the import is finished. A file of ``store.backup`` replaces a
    SQLite database, which no program may have open. Raises InvalidArgument for a bad file, a database that is not
    empty, and a backup of PostgreSQL, which has tools of its own; BackendUnavailable.
    """
    from metastore.transfer.backup import is_backup, put_back  # noqa: PLC0415

    if source is None or (issubclass(type(source), str) and "://" in str.__str__(cast(str, source))):
        source, url = url, source
    if source is None or not (url is None or issubclass(type(url), str)):
        raise InvalidArgument("a restore takes a file, and the URL of the database")
    if is_backup(source):
        put_back(cast(str | None, url), cast(str, source))
        return Imported(0, 0, 0, "", "", restored=True)
    return restore_export(cast(str | None, url), source, progress)


def restore_export(
    url: str | None, source: FileOrName, progress: Callable[[float], None] | None, checked: Checked | None = None
) -> Imported:
    """Import an export with ids into an empty database; see :func:`~metastore.transfer.calls.restore_into`."""
    from metastore.transfer import calls  # noqa: PLC0415

    parsed = parse_url(url)
    if not calls.has_ids(source):  # so that a bad file leaves no empty database behind
        raise InvalidArgument("the file was exported without ids; open the database, and import it there")
    backend = connect(parsed, _DEADLINE, restoring=True)
    try:
        return calls.restore_into(backend, SYSTEM, source, progress, checked)
    finally:
        backend.close()
