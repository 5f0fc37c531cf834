"""``crawl``: from folders to tables, on Spark.

    driver      list folders, name what may be tables                                   paths, sizes
    executors   look into files: Parquet footers, text as a whole     one task per share of files
    executors   decide, plan, commit straight into the store          one task per bucket of schemas
    driver      add up                                                one small row per table or failure

Between the two stages Spark moves what was found of each file; the driver holds names and rows only. The database's
URL goes to the executors inside the tasks and stands in no configuration. Tasks are safe to run twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from metastore.clock import SYSTEM, Clock
from metastore.crawl.candidates import Candidate, candidates
from metastore.crawl.catalog import prepare, reachable_url
from metastore.crawl.commit import Row
from metastore.crawl.discover import walk
from metastore.crawl.report import CrawlReport, Failure, Note, TableResult, summed
from metastore.errors import InvalidArgument
from metastore.names import Path, parse_path

__all__ = ["Progress", "crawl"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done, 0 to 1."""


def crawl(
    paths: Iterable[str | os.PathLike[str]],
    into: Path,
    url: str | None = None,
    *,
    master: str = "local[*]",
    principal: str | None = None,
    progress: Progress | None = None,
    clock: Clock = SYSTEM,
) -> CrawlReport:
    """Register what is in the folders ``paths`` as tables below ``into``, a catalog or a schema.

    Metalake, catalog and schema are created where they are missing. Files that cannot be read are in the report, and
    stop nothing. Raises InvalidArgument for a path that is not there, or where Java or pyspark are missing.
    """
    began = clock.monotonic()
    target, reachable = _target(into), reachable_url(url)
    tell = progress or (lambda _what, _fraction: None)
    tell("listing folders", 0.0)
    listing = walk([paths] if isinstance(paths, str | os.PathLike) else paths)
    found, unnamed = candidates(listing, target)
    prepare(reachable, target, principal)
    rows = _run(found, reachable, principal, master, tell) if found else []
    tell("done", 1.0)
    return summed(
        [row for row in rows if isinstance(row, TableResult)],
        [*listing.failures, *unnamed, *(row for row in rows if isinstance(row, Failure))],
        [*listing.notes, *(row for row in rows if isinstance(row, Note))],
        skipped=listing.skipped,
        seconds=clock.monotonic() - began,
    )


def _target(into: Path) -> tuple[str, ...]:
    names = parse_path(into)
    if len(names) < 2:
        raise InvalidArgument(f"{into!r} is a metalake; give a catalog, such as {names[0]}.main, or a schema in one")
    return names


def _run(found: list[Candidate], url: str, principal: str | None, master: str, tell: Progress) -> list[Row]:
    try:
        from metastore.crawl.spark_job import run  # noqa: PLC0415 (pyspark is an extra)
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the crawler needs the package {error.name}: pip install 'metastore[spark]'") from None
    return run(found, url, principal, master, tell)
