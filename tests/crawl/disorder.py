"""Crawls in this process that are held up at each of their steps: between two of them anything may happen.

``step`` is called before and after each look and each write of a crawl, also inside its transactions. It may edit,
change files, let another crawl run, run a task of an earlier crawl again, as Spark does, or raise :class:`Killed`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import metastore as ms
from metastore.crawl import job
from metastore.crawl import tasks as stages
from metastore.crawl.dataset.candidates import Candidate
from metastore.crawl.files.discover import walk
from metastore.crawl.files.gone import is_gone
from metastore.crawl.files.listing import Listing
from metastore.crawl.report import CrawlReport
from metastore.crawl.tasks import Setting, crawl_whole, shared
from metastore.crawl.write import commit, missing
from metastore.crawl.write.catalog import StoreCatalog
from metastore.crawl.write.commit import Row

__all__ = ["Disorder", "Killed"]

Step = Callable[[], None]
_SHARES = 3


class Killed(BaseException):
    """The process that crawls, or the one that runs its task, was killed here."""


@dataclass
class Disorder:
    """Crawls of one lake into ``into``."""

    url: str
    store: ms.Store
    root: Path
    random: Random
    step: Step
    into: tuple[str, ...]
    breaks: bool = False
    """Whether the next listing lacks some of what is there."""
    tasks: list[tuple[bytes, Setting]] = field(default_factory=list)

    def crawl(self, *, breaks: bool = False, **options: Any) -> CrawlReport:
        """Crawl the lake. ``breaks``: the listing lacks some of what is there."""
        self.breaks = breaks
        return job.crawl([self.root], self.into, self.url, principal="crawler", **options)

    def run_again(self) -> None:
        """Run a task of an earlier crawl, as Spark does when it has lost an executor."""
        if self.tasks:
            share, setting = self.random.choice(self.tasks)
            list(crawl_whole([pickle.loads(share)], setting))

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Hold up all crawls of this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "_spark_job", lambda: self._run)
            patch.setattr(job, "walk", self._walking(walk))
            for module in (commit, missing):
                patch.setattr(module, "is_gone", self._asking(is_gone))
            patch.setattr(stages, "open_catalog", self._open)
            yield

    def _walking(self, walk: Callable[..., Listing]) -> Callable[..., Listing]:
        def walked(*args: Any, **options: Any) -> Listing:
            breaks, self.breaks = self.breaks, False  # a step may begin another crawl
            self.step()
            listing = walk(*args, **options)
            self.step()
            return self._broken(listing) if breaks else listing

        return walked

    def _asking(self, ask: Callable[..., bool]) -> Callable[..., bool]:
        def asked(*args: Any) -> bool:
            answer = ask(*args)
            self.step()
            return answer

        return asked

    def _broken(self, listing: Listing) -> Listing:
        """Return what is left of a listing when a page of it is lost, and whatever comes after it."""
        left = self.random.randrange(len(listing.folders) + 1)
        folders = listing.folders[:left]
        if folders and self.random.random() < 0.5:
            last = folders.pop()
            folders.append(replace(last, files=last.files[: self.random.randrange(len(last.files)) + 1]))
        return replace(listing, folders=folders)

    def _open(
        self, _url: str, _principal: str | None, _id: str, policy: Any, run: str | None, listed: int
    ) -> StoreCatalog:
        return _HeldUp(self.store, self.step, policy, run, listed)

    def _run(self, found: Sequence[Candidate], setting: Setting, *_: object) -> tuple[list[Row], int]:
        rows: list[Row] = []
        for share in map(pickle.dumps, shared(found, _SHARES)):
            self.tasks.append((share, setting))
            rows += self._task(share, setting)
        return rows, 0

    def _task(self, share: bytes, setting: Setting) -> list[Row]:
        while True:
            try:
                self.step()
                return list(crawl_whole([pickle.loads(share)], setting))
            except Killed:
                if self.random.random() < 0.5:
                    raise  # the driver was killed; otherwise only the executor: its task runs again


class _HeldUp(StoreCatalog):
    """The crawler's access to the store, held up at each call and inside of its transactions."""

    def __init__(self, store: ms.Store, step: Step, *rest: Any) -> None:
        super().__init__(store, *rest)
        self._step = step

    def find(self, *args: Any) -> Any:
        found = super().find(*args)
        self._step()
        return found

    def create(self, new: Sequence[Any]) -> bool:
        self._step()
        made = super().create(new)
        self._step()
        return made

    def _write_all(self, tx: Any, requests: Iterable[Any]) -> Any:
        def planned(decide: Any) -> Any:
            def plan(stored: Any) -> Any:
                made = decide(stored)
                self._step()
                return made

            return plan

        self._step()
        done = super()._write_all(tx, [(dataset, state, planned(decide)) for dataset, state, decide in requests])
        self._step()
        return done

    def note_unused(self, *args: Any) -> None:
        self._step()
        super().note_unused(*args)
