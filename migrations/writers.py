"""Stop programs that are too old for the database from changing it: triggers, which revisions from 0012 on set.

A program states its format in each row that it gives a position, and when its gc changes ``info``. The triggers refuse
a format below ``oldest``, and a row without a format, which is how programs before format 12 write. A revision that
excludes older programs calls :func:`only_from`, and says so in ``OLDEST``. The effect of this module on existing
revisions must not change.
"""

from __future__ import annotations

from alembic import op

__all__ = ["from_any", "only_from"]

_MESSAGE = (
    "a program older than format {oldest} must not change this database any more: end it, and start version "
    "0.{oldest} or later"
)
# 3F000: programs of every format read it as "the schema does not fit", which is never tried again
_RULES = """CREATE OR REPLACE FUNCTION metastore_refuse_older() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{message}' USING ERRCODE = '3F000', CONSTRAINT = 'metastore_writer';
END $$"""
# clear the value: otherwise it would also count for the next program, which may be older and state no format
_CLEARS = """CREATE OR REPLACE FUNCTION metastore_clear_writer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.writer := NULL;
  RETURN NEW;
END $$"""
_TOO_OLD = "(NEW.writer IS NULL OR NEW.writer < {oldest})"
_WRITES = "NEW.seq IS NOT NULL AND " + _TOO_OLD
_COLLECTS = "UPDATE OF forgotten, collected_seq, past_from ON info"
_EACH = "FOR EACH ROW WHEN"

_POSTGRES = (
    _RULES,
    _CLEARS,
    f"""CREATE TRIGGER operation_writer BEFORE INSERT OR UPDATE OF seq ON operation {_EACH} ({_WRITES})
EXECUTE FUNCTION metastore_refuse_older()""",
    # triggers of one kind run in the order of their names: this one must see the value before it is cleared
    f"CREATE TRIGGER info_writer BEFORE {_COLLECTS} {_EACH} ({_TOO_OLD}) EXECUTE FUNCTION metastore_refuse_older()",
    f"""CREATE TRIGGER info_writer_cleared BEFORE UPDATE OF writer ON info {_EACH} (NEW.writer IS NOT NULL)
EXECUTE FUNCTION metastore_clear_writer()""",
)
_RAISE = "BEGIN SELECT RAISE(ABORT, '{message}'); END"
_CLEAR = "BEGIN UPDATE info SET writer = NULL; END"
_SQLITE = (
    f"CREATE TRIGGER operation_writer BEFORE INSERT ON operation {_EACH} {_WRITES} {_RAISE}",
    f"CREATE TRIGGER operation_writer_resolved BEFORE UPDATE OF seq ON operation {_EACH} {_WRITES} {_RAISE}",
    f"CREATE TRIGGER info_writer BEFORE {_COLLECTS} {_EACH} {_TOO_OLD} {_RAISE}",
    f"CREATE TRIGGER info_writer_cleared AFTER UPDATE OF writer ON info {_EACH} NEW.writer IS NOT NULL {_CLEAR}",
)
_TRIGGERS = (("operation", "operation_writer"), ("info", "info_writer"), ("info", "info_writer_cleared"))


def only_from(oldest: int) -> None:
    """Stop programs older than the format ``oldest`` from writing."""
    from_any()
    message = _MESSAGE.format(oldest=oldest)
    for statement in _POSTGRES if _is_postgres() else _SQLITE:
        op.execute(statement.format(message=message, oldest=oldest))


def from_any() -> None:
    """Remove the triggers."""
    if _is_postgres():
        for table, trigger in _TRIGGERS:
            op.execute(f"DROP TRIGGER IF EXISTS {trigger} ON {table}")
        op.execute("DROP FUNCTION IF EXISTS metastore_refuse_older()")
        op.execute("DROP FUNCTION IF EXISTS metastore_clear_writer()")
    else:
        for _, trigger in (*_TRIGGERS, ("operation", "operation_writer_resolved")):
            op.execute(f"DROP TRIGGER IF EXISTS {trigger}")


def _is_postgres() -> bool:
    return op.get_bind().dialect.name == "postgresql"
