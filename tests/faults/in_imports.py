"""Faults of repeated imports: they take back what people did here meanwhile."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_IMPORTS"]

IN_IMPORTS: tuple[Fault, ...] = (
    Fault(
        "Gravitino: a column whose drop in steps begins while an import runs is seen again",
        "metastore/transfer/replace.py",
        '{**new, **kept_dropping(new.get("columns", ()), old)} if ours',
        "{**new} if ours",
        "tests/imports/test_gravitino_stays.py -k dropped_in_steps",
    ),
    Fault(
        "Gravitino: an import writes on after another one took its turn",
        "metastore/imports/gravitino/run.py",
        "Call(lease=lease)",
        "Call()",
        "tests/imports/test_gravitino_stays.py -k one_import",
    ),
    Fault(
        "Gravitino: an import drops what is gone there after another one took its turn",
        "metastore/imports/gravitino/follow.py",
        ".drop(entity, lease=lease))",
        ".drop(entity))",
        "tests/imports/test_gravitino_stays.py -k one_import",
    ),
    Fault(
        "Imports: where names are folded, a table gets what was made for another one that is gone there",
        "metastore/imports/places.py",
        "return other if noted is not None and noted.id == found.id else None",
        "return None",
        "tests/imports/test_iceberg.py -k take_turns",
    ),
    Fault(
        "Import of an Iceberg catalog: a table that was renamed here is made again",
        "metastore/imports/places.py",
        "        if missing:\n            places |=",
        "        if False:\n            places |=",
        "tests/imports/test_iceberg.py -k history",
    ),
    Fault(
        "Import of an Iceberg catalog: a table that was moved and then dropped here is made again",
        "metastore/imports/places.py",
        "places[path] = None if one.dropped else Place(one.path, known=True, own=True)",
        "places[path] = Place(path, known=False)",
        "tests/imports/test_iceberg.py -k wherever",
    ),
    Fault(
        "Import of an Iceberg catalog: a catalog that was dropped here is made again",
        "metastore/imports/root.py",
        "if noted is not None and noted.dropped:\n            raise",
        "if False:\n            raise",
        "tests/imports/test_iceberg.py -k wherever",
    ),
    Fault(
        "Import of an Iceberg catalog: after it was moved to another metalake, its own one is not found again",
        "metastore/imports/root.py",
        "path[:1], metalake)\n        notes",
        "path[:1], store.metalakes.load(entity.names[:1]))\n        notes",
        "tests/imports/test_iceberg.py -k wherever",
    ),
    Fault(
        "Import of an Iceberg catalog: a revert of the metalake takes its notes away",
        "metastore/past/plan.py",
        'kind == "origin" and',
        "False and",
        "tests/imports/test_iceberg.py -k wherever",
    ),
    Fault(
        "Import of an Iceberg catalog: its notes tell users of what they do not see",
        "metastore/feed/visible.py",
        "if step.kind != ORIGIN.name]",
        "if True]",
        "tests/imports/test_iceberg.py -k wherever",
    ),
    Fault(
        "Import of an Iceberg catalog: it goes on to write after another import took its place",
        "metastore/imports/iceberg.py",
        'return {"lease": self._lease}',
        "return {}",
        "tests/imports/test_iceberg.py -k one_import",
    ),
    Fault(
        "Import of an Iceberg catalog: two schemas there share the one that was renamed here",
        "metastore/imports/places.py",
        "if entity.version == 1 or",
        "if True or",
        "tests/imports/test_iceberg.py -k in_the_way",
    ),
    Fault(
        "Import of an Iceberg catalog: two tables whose names are one here take turns",
        "metastore/imports/places.py",
        "apart[path] = place._replace(taken_by=other)",
        "apart[path] = place",
        "tests/imports/test_iceberg.py -k take_turns",
    ),
    Fault(
        "Import from Spark: a task that runs again makes again what was dropped meanwhile",
        "metastore/imports/spark.py",
        "operation_id=one.operation",
        "operation_id=None",
        "tests/imports/test_spark.py -k repeated_task",
    ),
)
