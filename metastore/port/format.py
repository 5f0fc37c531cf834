"""The format of the tables: the one that this program needs, and a check that a database admits the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from metastore.errors import BackendRefused, MigrationNeeded

R = TypeVar("R")

SCHEMA_FORMAT: Final = 12
"""The format of the schema that this program needs; migrations raise it in ``info``."""

RESTORING: Final = 2**31 - 1
"""The oldest format for a database while a restore into it is unfinished: no program can open it."""

RESTORED: Final = 2**15 - 1
"""The writer's format in a restored step: an export does not say which program wrote the step."""


def check_compatible(compatible_from: int) -> None:
    """Raise MigrationNeeded if a migration has excluded this program since it opened the database."""
    if SCHEMA_FORMAT < compatible_from != RESTORING:
        raise MigrationNeeded(
            f"the database was migrated, and programs older than format {compatible_from} cannot use it any more; this "
            f"one has {SCHEMA_FORMAT}: end it, and start version 0.{compatible_from} or later"
        )


def one_info(rows: Sequence[R]) -> R:
    """Return the one row of the table ``info``. Raises BackendRefused if it is missing, because a restore failed."""
    if len(rows) != 1:
        raise BackendRefused(
            f"the table info has {len(rows)} rows, not one: the backup was not restored completely; restore it again"
        )
    return rows[0]
