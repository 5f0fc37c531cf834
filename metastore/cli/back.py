"""``export gravitino --to URL``: write the catalog into the tables of another system."""

from __future__ import annotations

import dataclasses
from typing import Final

from metastore.cli.imports import show_findings, step_progress
from metastore.cli.output import console, write, write_json
from metastore.cli.settings import Settings
from metastore.errors import InvalidArgument

__all__ = ["export_system"]

_SYSTEMS: Final = ("gravitino",)


def export_system(settings: Settings, system: str | None, to: str, json: bool) -> bool:
    """Export into a system; return whether the store was exported completely."""
    if system not in _SYSTEMS:
        raise InvalidArgument(f"--to works only with {', '.join(_SYSTEMS)}, not with {system or 'everything'!r}")
    try:
        from metastore.exports.gravitino import export_gravitino  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        raise InvalidArgument("export gravitino needs more: pip install 'versioned-metastore[serve]'") from None
    with step_progress(quiet=json) as tell:
        report = export_gravitino(settings.url, to, progress=tell)
    if json:
        write_json({**dataclasses.asdict(report), "whole": report.whole})
        return report.whole
    out = console()
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.counts.items()))
    write(out, f"Wrote {counts or 'nothing'}, in {report.rows:,} rows.")
    if report.replaced:
        write(out, "An earlier export was replaced.")
    show_findings(report.findings)
    write(out, "The whole store was exported." if report.whole else "The export differs from the store as named above.")
    return report.whole
