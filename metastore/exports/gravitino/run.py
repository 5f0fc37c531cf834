"""One export from beginning to end: a snapshot of the store as lines, the rows, and a comparison; all or nothing.

The lines are read three times: for the addresses, for the rows of the entities, and for those of the relations. So a
relation may lead to an entity that comes later in the file. A relation is left out if its entity is left out.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from typing import BinaryIO

from metastore.exports.gravitino.addresses import Addresses
from metastore.exports.gravitino.compare import compare
from metastore.exports.gravitino.entities import NoPlace, Said, TablesRow, owned_rows, rows_of
from metastore.exports.gravitino.links import link_rows
from metastore.exports.gravitino.releases import release_of
from metastore.exports.gravitino.report import ExportReport
from metastore.exports.gravitino.target import Target, open_target
from metastore.imports.counts import Tell
from metastore.imports.gravitino.groups import Group, groups
from metastore.kinds.model.version import MODEL_VERSION
from metastore.kinds.secret import as_secret, is_sealed
from metastore.names import format_path
from metastore.store import open_store
from metastore.transfer.lines import EntityLine, OwnedLine

__all__ = ["export_gravitino"]


def export_gravitino(url: str | None, to: str, *, progress: Tell | None = None) -> ExportReport:
    """Write the live entities of the store at ``url`` into Gravitino's own tables at ``to``; return the report.

    ``to`` has Gravitino's tables of any 1.x. They are empty, or hold an earlier export without later changes, which the
    new one replaces. An export that fails or is killed leaves the database as it was. Gravitino's server must not run
    on it meanwhile. Raises InvalidArgument for any other database; the message says what to do.
    """
    tell = progress or (lambda _step, _share: None)
    report = ExportReport()
    with tempfile.TemporaryFile() as lines, open_target(to) as target:
        report.replaced = target.begin()
        tell("reading", 0.0)
        with open_store(url) as store:
            store.export_to(lines, ids=True)
        addresses = _addresses(lines, report)
        now = time.time_ns() // 1_000_000
        tell("writing", 0.2)
        for group in groups(lines):
            _write_entity(group, addresses, target, report, now)
        tell("writing relations", 0.5)
        release = release_of(target.has)
        for group in groups(lines):
            if addresses.get(group.entity.kind, group.entity.names) is not None:
                _put(target, link_rows(Said(group, addresses, now), release))
        target.flush()
        tell("comparing", 0.7)
        with tempfile.TemporaryFile() as back:
            report.findings += target.read_back(back).findings
            compare(lines, addresses, back, report)
        target.finish()
        report.rows = target.rows
    return report


def _addresses(lines: BinaryIO, report: ExportReport) -> Addresses:
    addresses = Addresses()
    for group in groups(lines):
        why = addresses.add(group)
        if isinstance(why, str):
            _left_out(group, why, report)
    return addresses


def _left_out(group: Group, why: str, report: ExportReport) -> None:
    report.find("no_place", f"{group.entity.kind} {format_path(group.entity.names)}: {why}", "left out")


def _write_entity(group: Group, addresses: Addresses, target: Target, report: ExportReport, now: int) -> None:
    line = group.entity
    if addresses.get(line.kind, line.names) is None:
        return
    why: str | None = None if addresses.parent_is_there(line.names) else "its parent is left out"
    rows: list[TablesRow] = []
    if why is None:
        said = Said(group, addresses, now)
        try:
            own, *beside = rows_of(said)
            rows = [own, *[row for row in beside if target.has(row[0])]]
            why = next((problem for row in rows if (problem := target.problem(row))), None)
        except NoPlace as error:
            why = str(error)
    if why is not None:
        addresses.forget(line.kind, line.names)
        _left_out(group, why, report)
        return
    for row in rows:
        target.put(row)
    _put(target, owned_rows(said))
    _name_secrets(group, report)
    report.counts[line.kind] = report.counts.get(line.kind, 0) + 1


def _put(target: Target, rows: Iterable[TablesRow]) -> None:
    """Write rows that do not depend on each other. The comparison finds rows that the tables cannot hold."""
    for row in rows:
        if target.problem(row) is None:
            target.put(row)


def _name_secrets(group: Group, report: ExportReport) -> None:
    names = group.entity.names
    lines: list[tuple[tuple[str, ...], EntityLine | OwnedLine]] = [(names, group.entity)]
    lines += [((*names, one.name), one) for one in group.owned if one.kind == MODEL_VERSION.name]
    for path, line in lines:
        for key, value in line.doc["properties"].items():
            what = f"{line.kind} {format_path(path)}: the property {key!r}"
            if is_sealed(value):
                report.find("secret", f"{what} is encrypted here", "left out; set it there")
            elif as_secret(value) is not None:
                report.find("secret", f"{what} refers to a secret", "Gravitino reads it as a text")
