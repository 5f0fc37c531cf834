"""A program one version ahead of this one: one more revision, and the next format."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from metastore import database, migrations
from metastore.port import format as port_format
from metastore.port.format import SCHEMA_FORMAT

__all__ = ["HEAD", "NEWER", "newer_program"]

_MIGRATIONS = Path(migrations.__file__).parent.resolve()
HEAD = str(ScriptDirectory(str(_MIGRATIONS)).get_current_head())
"""The newest revision of this program."""
NEWER = SCHEMA_FORMAT + 1
REVISION = """\
import sqlalchemy as sa
from alembic import op

from metastore.migrations.writers import only_from

revision = "newer"
down_revision = "{head}"
branch_labels = None
depends_on = None
OLDEST = {compatible_from}


def upgrade():
    op.add_column("entity", sa.Column("note", sa.Text))
    only_from(OLDEST)
    op.execute("UPDATE info SET format = {newer}, compatible_from = {compatible_from}")


def downgrade():
    op.drop_column("entity", "note")
    only_from({format})
    op.execute("UPDATE info SET format = {format}, compatible_from = {format}")
"""


@contextmanager
def newer_program(folder: Path, compatible_from: int = SCHEMA_FORMAT) -> Iterator[None]:
    """Be the newer program; its migrations are in ``folder``. Other processes stay what they are."""
    if not folder.exists():
        shutil.copytree(_MIGRATIONS, folder)
        revision = REVISION.format(head=HEAD, format=SCHEMA_FORMAT, newer=NEWER, compatible_from=compatible_from)
        (folder / "versions" / "v9999_newer.py").write_text(revision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "__file__", str(folder / "__init__.py"))
        patch.setattr(database, "SCHEMA_FORMAT", NEWER)
        patch.setattr(port_format, "SCHEMA_FORMAT", NEWER)
        yield
