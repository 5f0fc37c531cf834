"""A program one version ahead of this one: one more revision, and the next format."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metastore import migrations, store

__all__ = ["NEWER", "newer_program"]

NEWER = 2
REVISION = """\
import sqlalchemy as sa
from alembic import op

revision = "newer"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("entity", sa.Column("note", sa.Text))
    op.execute("UPDATE info SET format = {newer}, compatible_from = {compatible_from}")


def downgrade():
    op.drop_column("entity", "note")
    op.execute("UPDATE info SET format = 1, compatible_from = 1")
"""


@contextmanager
def newer_program(folder: Path, compatible_from: int = 1) -> Iterator[None]:
    """Be the newer program; its migrations are in ``folder``. Other processes stay what they are."""
    if not folder.exists():
        shutil.copytree(Path(migrations.__file__).parent.resolve(), folder)
        revision = REVISION.format(newer=NEWER, compatible_from=compatible_from)
        (folder / "versions" / "v0002_newer.py").write_text(revision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "__file__", str(folder / "__init__.py"))
        patch.setattr(store, "FORMAT", NEWER)
        yield
