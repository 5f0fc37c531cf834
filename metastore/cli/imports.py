"""``import gravitino | iceberg | spark``: bring the catalogs of another system into the database."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from metastore.cli.output import console, write, write_json
from metastore.cli.settings import Settings
from metastore.errors import InvalidArgument

if TYPE_CHECKING:
    from metastore.imports.counts import ImportCounts, Tell
    from metastore.imports.gravitino import Finding, Report

__all__ = ["SYSTEMS", "import_system", "show_findings", "step_progress"]

SYSTEMS: Final = ("gravitino", "iceberg", "spark")
_MOST: Final = 40
"""How many findings are shown; ``--json`` shows all."""


def import_system(
    settings: Settings, system: str, source: str, into: str | None, options: list[str], json: bool
) -> bool:
    """Import from a system; return whether everything was imported."""
    with step_progress(quiet=json) as tell:
        if system == "gravitino":
            return _gravitino(settings, source, tell, json)
        if into is None:
            raise InvalidArgument(
                f"import {system} needs --into: {'lake.catalog' if system == 'iceberg' else 'a metalake'}"
            )
        given = dict(_option(text) for text in options)
        run = _iceberg if system == "iceberg" else _spark
        outcome = run(settings, source, into, given, tell)
    return _show(outcome, json)


def _gravitino(settings: Settings, source: str, tell: Tell, json: bool) -> bool:
    try:
        from metastore.imports.gravitino import import_gravitino  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        raise InvalidArgument("import gravitino needs more: pip install 'versioned-metastore[serve]'") from None
    report = import_gravitino(settings.url, source, progress=tell)
    if json:
        write_json({**dataclasses.asdict(report), "same": report.same})
    else:
        _show_report(report)
    return report.same


def _show_report(report: Report) -> None:
    out = console()
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.counts.items()))
    write(out, f"Read {counts or 'nothing'}.")
    write(out, f"{report.written:,} written, {report.left:,} left as they were, {report.renamed:,} renamed, ")
    write(out, f"{report.removed:,} removed, {report.dropped:,} dropped ones kept to be restored.")
    show_findings(report.findings)
    write(out, f"content hash there  {report.source_hash}")
    write(out, f"content hash here   {report.target_hash}")
    differ = "The contents differ: another program changed them here; import again."
    write(out, "The contents are the same." if report.same else differ)


def show_findings(findings: Sequence[Finding]) -> None:
    """Write the first findings, one per line."""
    out = console()
    for one in findings[:_MOST]:
        write(out, f"{one.problem}: {one.what}: {one.done}")
    if len(findings) > _MOST:
        write(out, f"… and {len(findings) - _MOST:,} more; --json shows all.")


def _iceberg(settings: Settings, source: str, into: str, options: dict[str, str], tell: Tell) -> ImportCounts:
    try:
        from metastore.imports.iceberg import import_iceberg, open_catalog  # noqa: PLC0415
    except ImportError:
        raise InvalidArgument("import iceberg needs more: pip install 'versioned-metastore[iceberg]'") from None
    return import_iceberg(settings.url, open_catalog(source, options), into, progress=tell)


def _spark(settings: Settings, source: str, into: str, options: dict[str, str], tell: Tell) -> ImportCounts:
    try:
        from metastore.imports.spark import import_spark, spark_session  # noqa: PLC0415
    except ImportError:
        raise InvalidArgument("import spark needs more: pip install 'versioned-metastore[spark]'") from None
    if settings.url is None:
        raise InvalidArgument("import spark needs --url: the executors open the same database")
    with spark_session(source, options) as session:
        return import_spark(settings.url, session, into, progress=tell)


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidArgument(f"an option is written key=value, not {text!r}")
    return key, value


def _show(outcome: ImportCounts, json: bool) -> bool:
    if json:
        write_json(dataclasses.asdict(outcome))
        return not outcome.failures
    out = console()
    write(out, f"{outcome.namespaces:,} namespaces, {outcome.written:,} written, {outcome.left:,} left as they were.")
    for one in outcome.failures:
        write(out, f"not imported: {one}")
    return not outcome.failures


@contextmanager
def step_progress(*, quiet: bool) -> Iterator[Tell]:
    """Show a progress bar, but only on a terminal."""
    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield lambda _step, _share: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda step, share: bar.update(task, description=step, completed=share)
