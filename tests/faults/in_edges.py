"""Faults of what follows the store, or leaves it: the feed's readers, Spark, webhooks."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_EDGES"]

_RELAY = "tests/past/test_relay.py"
_WRITERS = "tests/migration/test_writers.py"

IN_EDGES: tuple[Fault, ...] = (
    Fault(
        "a tag on a column that a table lacks ends the import that leaves the table as it is",
        "metastore/transfer/relations.py",
        'if if_exists == "return":  # the table stays as it is, without the column',
        "if False:",
        "tests/transfer/test_into.py -k it_lacks",
    ),
    Fault(
        "a change that gc removed while hidden ones were read is passed over",
        "metastore/feed/feed.py",
        "        if len(whole) < len(positions):  # a purge removes steps too\n",
        "        if False:\n",
        "tests/grow/test_costs.py",
    ),
    Fault(
        "the documents behind many hidden changes are read all at once",
        "metastore/feed/feed.py",
        "positions = [step.seq or 0 for step in rows[begin : begin + _PAGE]]",
        "positions = [step.seq or 0 for step in rows[begin:]]",
        "tests/grow/test_costs.py -k double",
    ),
    Fault(
        "Revert: what was made below something that left and was dropped elsewhere comes back with it",
        "metastore/past/plan.py",
        "there.issuperset(_from_goal(plan, chain))",
        "there.issuperset(chain)",
        "tests/past/test_revert_places.py -k 'memory and made'",
    ),
    Fault(
        "Revert: two that wait for each other, because each stood below the other one, wait for ever",
        "metastore/past/undo.py",
        "if self._state(goal.id) != LIVE:  # it waits",
        "if False:  # it waits",
        "tests/past/test_revert_places.py -k 'memory and round'",
    ),
    Fault(
        "Revert: an entity moves below itself, while its old parent still stands below it",
        "metastore/past/undo.py",
        "if not self._stands(goal) and not self._is_above_its_parent(goal):",
        "if not self._stands(goal):",
        "tests/past/test_revert_places.py -k 'memory and round'",
    ),
    Fault(
        "SQLite: a restore reads all guards",
        "metastore/backends/sqlite/checks.py",
        "AND state = {DROPPED}\n  AND {_GONE}\n",
        "AND state = {DROPPED}\n",
        "tests/grow/test_costs.py",
    ),
    Fault(
        "Feed: steps that gc removed while they were read are left out",
        "metastore/feed/feed.py",
        "if _has_gap(page.rows, seq):  # a commit that failed",
        "if False:  # a commit that failed",
        "tests/spark/test_source.py -k gc_removes",
    ),
    Fault(
        "Spark: a checkpoint without the newest change",
        "metastore/spark/source/source.py",
        'if "change" in start:',
        "if False:",
        "tests/spark/test_source.py -k checkpoint_notices",
    ),
    Fault(
        "Import: the header of an export may have changed",
        "metastore/transfer/reader.py",
        'for what in ("header", "entities",',
        'for what in ("entities",',
        "tests/transfer/test_bad_input.py",
    ),
    Fault(
        "Spark: a task that runs again writes again",
        "metastore/spark/once.py",
        "with store.transaction(operation_id=operation) as tx:",
        "with store.transaction() as tx:",
        "tests/spark/test_source.py -k runs_again",
    ),
    Fault(
        "Import: columns take the ids of another database",
        "metastore/transfer/replace.py",
        "doc = dict(new) if ours else known.replaced_by(old, new)",
        "doc = dict(new)",
        "tests/transfer/test_into.py -k replaced_table",
    ),
    Fault(
        "Import: a counter goes down",
        "metastore/transfer/replace.py",
        "doc[name] = field.joined(new[name], old[name])",
        "doc[name] = new[name]",
        "tests/transfer/test_into.py -k counter",
    ),
    Fault(
        "Webhook: a redirect counts as done",
        "metastore/past/webhook.py",
        "if 200 <= answer.status < 300:",
        "if 200 <= answer.status < 400:",
        _RELAY,
    ),
    Fault(
        "Webhook: an answer that never ends is waited for",
        "metastore/past/webhook.py",
        "    timer.start()\n",
        "",
        f"{_RELAY} -k never_ends --timeout 20",
    ),
    Fault(
        "Webhook: Retry-After is ignored",
        "metastore/past/relay.py",
        "wait = max(pause, failure.retry_after)",
        "wait = pause",
        _RELAY,
    ),
    Fault(
        "verify: the past at now may differ from the present",
        "metastore/verify/history.py",
        "for message in now_problems(last, self._taken, place):",
        "for message in ():",
        "tests/verify/test_columns.py -k rests_on",
    ),
    Fault(
        "verify: a commit that shows its rows one by one in the past",
        "metastore/verify/operations.py",
        "for problem in together.problems():",
        "for problem in ():",
        "tests/verify/test_columns.py -k rests_on",
    ),
    Fault(
        "Backup: the log of the state before stays beside a backup that is put back",
        "metastore/backends/sqlite/copies.py",
        '            Path(f"{target}{end}").unlink(missing_ok=True)',
        "            pass",
        "tests/migration/test_backup.py -k cannot_be_read",
    ),
    Fault(
        "SQLite: a file that was deleted takes writes",
        "metastore/backends/sqlite/connect.py",
        "if self._file != there:",
        "if False:",
        "tests/migration/test_backup.py -k goes_away",
    ),
    Fault(
        "SQLite: a call whose time is over is told to look at the file",
        "metastore/backends/sqlite/connect.py",
        "of_sqlite(code) is Consequence.RETRY and remaining",
        "of_sqlite(code) is None and remaining",
        "tests/concurrency/test_group_commit.py -k until_its_deadline",
    ),
    Fault(
        "Migration: a gc that is too old goes on",
        "migrations/writers.py",
        '"UPDATE OF forgotten, collected_seq, past_from ON info"',
        '"UPDATE OF last_id ON info"',
        f"{_WRITERS} -k gc",
    ),
    Fault(
        "Migration: an intent that a program applies which is too old",
        "migrations/writers.py",
        "BEFORE INSERT OR UPDATE OF seq ON operation {_EACH}",
        "BEFORE INSERT ON operation {_EACH}",
        f"{_WRITERS} -k before_format_12",
    ),
    Fault(
        "Migration: programs that are connected are not named",
        "migrations/sessions.py",
        "return oldest if oldest > admitted else None",
        "return None",
        f"{_WRITERS} -k names",
    ),
    Fault(
        "Feed: what an ancestor that was dropped has below it is lost to its followers",
        "metastore/feed/standing.py",
        "        self.path, self.dropped = (*path, *self.dropped[1]), None\n        return True",
        "        return True",
        "tests/past/test_under.py -k memory",
    ),
    Fault(
        "Feed: a namesake of another family is followed",
        "metastore/feed/standing.py",
        "below[:high] == above",
        "True",
        "tests/past/test_under.py -k memory",
    ),
    Fault(
        "Transactions: one that drops something carries nothing",
        "metastore/operation/tickets.py",
        "    backend, known, carries = session.backend",
        "    if moved:\n        return commit\n    backend, known, carries = session.backend",
        "tests/past/test_revert.py -k 'starve and sqlite'",
    ),
    Fault(
        "Transactions: one that waits for the dead owner of a change below what it moves",
        "metastore/operation/tickets.py",
        "            carries.append(_nothing(last))\n            continue",
        "            continue",
        "tests/progress/test_transactions_beside.py -k 'moves and sqlite and dropped'",
    ),
)
