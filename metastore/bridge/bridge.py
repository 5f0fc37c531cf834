"""The front of the bridge: one lock tree for the process, and the stage of each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from metastore.arguments import positive_seconds, shown
from metastore.bridge.exclusive import Exclusive
from metastore.bridge.section import STAGES, Mode, Section, Stage
from metastore.bridge.shadow import Recorder, Report, caller
from metastore.bridge.tree import Tree
from metastore.bridge.watch import Row, Subtree, Watch
from metastore.clock import SYSTEM, begins_again
from metastore.errors import InvalidArgument, VersionConflict
from metastore.names import Path, format_path, parse_path
from metastore.operation.session import Session
from metastore.port.conditions import LeaseToken
from metastore.retry.bucket import TokenBucket
from metastore.retry.policy import RetryPolicy
from metastore.retry.runner import Conflict, Effort, run
from metastore.store import Store

__all__ = ["Bridge", "do_with_tree_lock", "install", "installed", "tree_lock"]

R = TypeVar("R")

_RUNS_AT_ONCE = 1e6
"""No limit on runs: only the timeout bounds them. Each run that loses has lost to a committed change."""


class _Changed(Exception):
    """The data that a section for reading depends on changed while it ran."""

    def __init__(self, conflict: VersionConflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


class Bridge:
    """One lock tree, and the store that takes over its work. Thread-safe.

    ``stage`` applies to every call that does not name another one. ``ttl``: how long a bridged section for writing
    keeps others out after its process died (seconds). Raises InvalidArgument.
    """

    def __init__(self, store: Store | None = None, stage: Stage = "lock", *, ttl: float = 30.0) -> None:
        if store is not None and not isinstance(store, Store):
            raise InvalidArgument(f"a bridge leads to a store, or to none, not to {shown(store)}")
        self._store = store
        self._session: Session | None = None if store is None else store._session  # noqa: SLF001
        self._clock = SYSTEM if self._session is None else self._session.clock
        self._stage = self._known(stage)
        self._tree = Tree(self._clock)
        self._recorder = Recorder()
        ttl = positive_seconds(ttl, "a ttl")
        self._exclusive = None if store is None else Exclusive(store.leases, self._clock, ttl)
        begins_again(self, Bridge._begin)

    def _known(self, stage: object) -> Stage:
        for one in STAGES:
            if stage == one:
                if one != "lock" and self._store is None:
                    raise InvalidArgument(f"the stage {one!r} needs a store: bridge.install(store, {one!r})")
                return one
        raise InvalidArgument(f"a stage is one of {', '.join(STAGES)}, not {shown(stage)}")

    @contextmanager
    def tree_lock(
        self,
        path: Path,
        mode: Mode,
        *,
        changes: Path | None = None,
        site: str | None = None,
        stage: Stage | None = None,
        timeout: float = 30.0,
    ) -> Iterator[Section]:
        """Run a block under the lock of a path.

        ``with bridge.tree_lock("lake.sales.shop", "write") as section: …``. ``path``: a path, or ``()`` for the root;
        it need not exist. ``changes``: the path that the block changes, if that is not ``path`` itself, such as a table
        that is created under the lock of its schema. The stage ``"shadow"`` compares the row of that path. ``site``:
        the name in the report (None: the caller's file and line). ``stage``: the stage of this call alone. ``timeout``:
        how long to wait for the lock (seconds).

        Raises DeadlineExceeded after the timeout, InvalidArgument, BackendUnavailable. The stage ``"bridged"`` has two
        more errors. A block for reading raises VersionConflict at its end, even instead of its own error, if anything
        at the path or below has changed. Then run the block again, or use :func:`do_with_tree_lock`, which does that.
        The store's commits raise LeaseLost once another process has taken the section over; they write nothing.
        """
        where = caller(__package__) if site is None else site
        try:
            with self._section(path, mode, changes, where, stage, timeout) as section:
                yield section
        except _Changed as changed:
            raise changed.conflict from changed.__cause__

    def _section(
        self, path: Path, mode: Mode, changes: Path | None, where: str, stage: Stage | None, timeout: float
    ) -> AbstractContextManager[Section]:
        """Return the section of one call. A section for reading may raise _Changed at its end."""
        names = parse_path(path) if path not in ((), "") else ()
        if mode not in ("read", "write"):
            raise InvalidArgument(f"a lock is taken for 'read' or for 'write', not {shown(mode)}")
        target = names if changes is None else parse_path(changes)
        timeout = positive_seconds(timeout, "a timeout")
        now = self._stage if stage is None else self._known(stage)
        if now == "bridged":
            return self._written(names, timeout) if mode == "write" else self._validated(names)
        if now == "shadow":
            return self._shadowed(names, mode, target, where, timeout)
        return self._locked(names, mode, timeout)

    @contextmanager
    def _locked(self, names: tuple[str, ...], mode: Mode, timeout: float) -> Iterator[Section]:
        with self._tree.locked(names, mode, timeout):
            yield Section(names, mode, "lock")

    @contextmanager
    def _shadowed(
        self, names: tuple[str, ...], mode: Mode, target: tuple[str, ...], where: str, timeout: float
    ) -> Iterator[Section]:
        assert self._store is not None
        watch: Watch = Row(self._store, target) if mode == "write" else Subtree(self._store, names)
        asked = self._clock.monotonic()
        with self._tree.locked(names, mode, timeout):
            began = self._clock.monotonic()
            lost_to = watch.changes()
            try:
                yield Section(names, mode, "shadow")
            finally:
                self._recorder.add(where, mode, began - asked, self._clock.monotonic() - began, lost_to)

    @contextmanager
    def _written(self, names: tuple[str, ...], timeout: float) -> Iterator[Section]:
        assert self._exclusive is not None
        ends = self._clock.monotonic() + timeout
        # take the tree's lock first: threads of this process wait there without database calls, and it keeps out calls
        # that are not bridged yet
        with self._tree.locked(names, "write", timeout):
            left = max(ends - self._clock.monotonic(), 0.001)
            with self._exclusive.section(names, left) as lease:
                yield Section(names, "write", "bridged", lease)

    @contextmanager
    def _validated(self, names: tuple[str, ...]) -> Iterator[Section]:
        assert self._store is not None
        assert self._exclusive is not None
        watch = None if self._exclusive.holds(names) else Subtree(self._store, names)
        with self._exclusive.noted() as own:
            try:
                yield Section(names, "read", "bridged")
            except Exception as error:  # if data has changed, which may be the cause, the check raises another error
                _check(watch, names, own, error)
                raise
            _check(watch, names, own)

    def do_with_tree_lock(
        self,
        path: Path,
        mode: Mode,
        function: Callable[[Section], R],
        *,
        changes: Path | None = None,
        site: str | None = None,
        stage: Stage | None = None,
        timeout: float = 30.0,
    ) -> R:
        """Call ``function`` with the section under the lock of a path, and return its result.

        A bridged section for reading is run again until nothing changes while it runs: ``function`` may be called
        several times. Otherwise it works as :meth:`tree_lock`. Also raises DeadlineExceeded if a change was committed
        during every run within ``timeout``.
        """
        where = caller(__package__) if site is None else site
        timeout = positive_seconds(timeout, "a timeout")

        def attempt(_: int) -> R:
            try:
                with self._section(path, mode, changes, where, stage, timeout) as section:
                    return function(section)
            except _Changed as changed:
                raise Conflict("read", str(changed)) from None

        policy, bucket = RetryPolicy(deadline=timeout), TokenBucket(_RUNS_AT_ONCE, _RUNS_AT_ONCE, self._clock)
        return run(attempt, Effort(policy, self._clock, bucket, lambda: f"the section that reads {path!r}"))

    def report(self) -> Report:
        """Return the records of the stage ``"shadow"``, by call site. A forked child starts from zero."""
        return self._recorder.report()

    def _begin(self) -> None:
        """Begin again in a forked child, without the parent's threads and their locks."""
        self._tree.clear()
        self._recorder = Recorder()


def _check(
    watch: Subtree | None, names: tuple[str, ...], own: Sequence[LeaseToken], error: Exception | None = None
) -> None:
    """Raise _Changed if the data that a section read has changed; ``error`` is the exception of its block.

    The block's own writes, in sections for writing inside it, do not count: a lock tree would not block them either.
    """
    if watch is not None and (changed := watch.changes(own)):
        path = format_path(names) or "the root"
        message = f"{path}: {changed} changes committed at or below it during the read; run the block again"
        raise _Changed(VersionConflict(path, None, None, message)) from error


_installed = Bridge()


def install(store: Store | None = None, stage: Stage = "lock", *, ttl: float = 30.0) -> Bridge:
    """Install a new bridge for :func:`tree_lock` in this process, and return it. Call it where the process starts.

    Running sections keep the tree that they began with, so call it before the first one. Raises InvalidArgument.
    """
    global _installed  # noqa: PLW0603  (call sites name no bridge, as they named no lock manager)
    _installed = Bridge(store, stage, ttl=ttl)
    return _installed


def installed() -> Bridge:
    """Return the bridge of this process. Without :func:`install` it is only a lock tree."""
    return _installed


def tree_lock(
    path: Path,
    mode: Mode,
    *,
    changes: Path | None = None,
    site: str | None = None,
    stage: Stage | None = None,
    timeout: float = 30.0,
) -> AbstractContextManager[Section]:
    """Run a block under the lock of a path, in the process's bridge. See :meth:`Bridge.tree_lock`."""
    return _installed.tree_lock(path, mode, changes=changes, site=site, stage=stage, timeout=timeout)


def do_with_tree_lock(
    path: Path,
    mode: Mode,
    function: Callable[[Section], R],
    *,
    changes: Path | None = None,
    site: str | None = None,
    stage: Stage | None = None,
    timeout: float = 30.0,
) -> R:
    """Call a function under the lock of a path, in the process's bridge. See :meth:`Bridge.do_with_tree_lock`."""
    return _installed.do_with_tree_lock(path, mode, function, changes=changes, site=site, stage=stage, timeout=timeout)
