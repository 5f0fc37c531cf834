"""Faults of batches, of those that wait in line, and of what batches and gc leave to the past."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_BATCHES"]

_ANCESTORS = "tests/combine/test_ancestors.py"
_BY_NAME = "tests/contract/test_by_name_contract.py"

IN_BATCHES: tuple[Fault, ...] = (
    Fault(
        "Batch of reads: a fresh scope version vouches for an outdated one",
        "metastore/backends/postgres/together/below.py",
        "held.issuperset(_scopes(one.parents)) for one in wanted}",
        "{i for i, _ in held}.issuperset([n.id for n in one.parents]) for one in wanted}",
        _ANCESTORS,
    ),
    Fault(
        "Batch: a rename takes another commit's version for its own",
        "metastore/backends/postgres/together/exclusive.py",
        "AND (w.follows IS NULL OR w.version = (SELECT",
        "AND (TRUE OR w.version = (SELECT",
        f"{_ANCESTORS} tests/combine/test_batches.py",
    ),
    Fault(
        "Batch: what it carries along has no place in the past",
        "metastore/backends/postgres/together/alter.py",
        "    parent_id = s.parent_id, name = s.name, fold = s.fold, state = s.state,\n",
        "",
        "tests/past/test_together.py",
    ),
    Fault(
        "gc: two at once hand a name on to a step that the other deletes",
        "metastore/backends/postgres/upkeep.py",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "tests/past/test_two_collectors.py",
    ),
    Fault(
        "Transactions: a run that lost notes no time",
        "metastore/transaction/transaction.py",
        "                line.took(session.clock.monotonic() - transaction.began)\n",
        "",
        "tests/progress/test_long_functions.py",
    ),
    Fault(
        "Group commit: a thread whose change is made asks again and again",
        "metastore/backends/sqlite/group.py",
        "job.waker.wait(_PATIENCE if taken else max(0.0, min(left, _LOOKS)))",
        "job.waker.wait(max(0.0, min(left, _LOOKS)))",
        "tests/concurrency/test_group_commit.py",
    ),
    Fault(
        "Group commit: an interrupt of the leader at its end loses those that wait",
        "metastore/backends/sqlite/group.py",
        "                interrupt = error\n",
        "                raise\n",
        "tests/concurrency/test_group_commit.py --timeout 60",
    ),
    Fault(
        "Group commit: an answer counts before the COMMIT, so that two interrupts acknowledge what is not committed",
        "metastore/backends/sqlite/group.py",
        "fate, made = _Fate(), 0",
        "fate, made = _Fate(), 0\n        fate.sent = fate.done = True",
        "tests/concurrency/test_group_commit.py -k second",
    ),
    Fault(
        "Turns: an interrupt of the message that removes a stale ticket closes the door for seconds",
        "metastore/transaction/line.py",
        "        self._door, self._term = door, term"
        "  # assigned first: an interrupt or a cancellation may come at the next line\n"
        "        self._ticket = door.follow()",
        "        self._door, self._term, self._ticket = door, term, door.follow()",
        "tests/operation/test_turns.py",
    ),
    Fault(
        "Turns: a head is taken for dead in the turn of the others",
        "metastore/operation/tickets.py",
        " or line.gap > 0:",
        ":",
        "tests/operation/test_turns.py -k turn_of_the_others",
    ),
    Fault(
        "Turns: who waits for long turns elsewhere is removed again and again",
        "metastore/operation/tickets.py",
        "min(2 * self._patience, _LONGEST_PATIENCE)",
        "self._patience",
        "tests/operation/test_turns.py -k waited_for_longer",
    ),
    Fault(
        "Deadlines: an interrupt leaves a deadline in the thread's context",
        "metastore/deadlines.py",
        "while block is not None and not block.runs:",
        "while False:",
        "tests/interrupts/test_blocks.py",
    ),
    Fault(
        "Lane: a leader whose own deadline was too short for a connection ends those that have more time",
        "metastore/combine/lane.py",
        "if one.ends <= now or handle.ends - now > self._patience:",
        "if True:",
        "tests/combine/test_lane.py -k speaks_for_itself",
    ),
    Fault(
        "Lane: each request that waits scans the whole queue",
        "metastore/combine/lane.py",
        "return self._patience if self._watcher is handle else max(self._patience, len(self._queue) / _LOOKS)",
        "return self._patience if self._watcher is handle or self._queue.index(handle) else self._patience",
        "tests/combine/test_crowds.py",
    ),
    Fault(
        "Freeze: one that is not got waits for its mark to go as long as the store may wait",
        "metastore/transaction/freeze.py",
        "with cleaning(self._outer.clock.monotonic() + seconds), suppress",
        "with suppress",
        "tests/progress/test_freeze.py -k not_got",
    ),
    Fault(
        "Transactions: what one read of a catalog is remembered, although it changed the catalog",
        "metastore/transaction/entities.py",
        "if catalog.id in self._reads.entities and not changed:",
        "if catalog.id in self._reads.entities:",
        "tests/secrets/test_round_trips.py -k only_runs_transactions",
    ),
    Fault(
        "By name: after a wait, what had the name before is renamed or dropped",
        "metastore/backends/postgres/by_name.py",
        "AND g.id = (SELECT id FROM there) AND {_NAMED}",
        "AND g.id = (SELECT id FROM there)",
        f"{_BY_NAME} -k during_the_wait",
    ),
    Fault(
        "By name: parents that have moved are good enough",
        "metastore/backends/postgres/by_name.py",
        "  WHERE {ALL_GUARDED} AND (SELECT {PATIENT})",
        "  WHERE (SELECT count(*) FROM guarded) >= 0 AND (SELECT {PATIENT})",
        f"{_BY_NAME} -k 'schemas and swapped and postgres'",
    ),
    Fault(
        "By name: what is not empty is dropped",
        "metastore/backends/postgres/by_name.py",
        "if write.empty else []",
        "if False else []",
        f"{_BY_NAME} -k 'children and postgres'",
    ),
    Fault(
        "By name: all entities are read to see whether one is empty",
        "metastore/backends/postgres/by_name.py",
        "    ORDER BY g.family, g.key LIMIT 1) IS NULL",
        "    LIMIT 1) IS NULL",
        f"{_BY_NAME} -k free_planner",
    ),
    Fault(
        "By name: an expected version does not count",
        "metastore/backends/postgres/by_name.py",
        "%(version)s::bigint IN (0, version)",
        "%(version)s::bigint >= 0",
        f"{_BY_NAME} -k 'children and postgres'",
    ),
    Fault(
        "By name: the reason of a call is forgotten",
        "metastore/backends/postgres/by_name.py",
        '"note": note_of(commit)}',
        '"note": None}',
        f"{_BY_NAME} -k 'children and postgres'",
    ),
    Fault(
        "By name: a view is renamed for a table",
        "metastore/backends/precondition.py",
        "if found is None or found.chain[-1].kind != write.event.kind:",
        "if found is None:",
        f"{_BY_NAME} -k 'another and kind and sqlite'",
    ),
    Fault(
        "By name: folded names are looked up as they were given",
        "metastore/operation/request.py",
        "if not remembered or remembered[-1].fold:",
        "if not remembered:",
        f"{_BY_NAME} -k 'folded and memory'",
    ),
    Fault(
        "Batches: each path that moved is followed by itself",
        "metastore/combine/reads.py",
        "anew = dict(zip(moved, session.backend.resolve(moved), strict=True)) if moved else {}\n",
        "anew = {path: session.backend.resolve([path])[0] for path in moved}\n",
        "tests/combine/test_ancestors.py -k one_message",
    ),
    Fault(
        "Secrets: a renamed catalog is taken for one with the same settings, whatever it declares",
        "metastore/operation/seals.py",
        "return None if found is None or found[1] != self.declared else ",
        "return None if found is None else ",
        "tests/secrets/test_renamed.py",
    ),
    Fault(
        "Secrets: what is announced rests on the settings before the rename",
        "metastore/operation/seals.py",
        "return replace(proposal, merge=_settled(merge, settled))",
        "return proposal",
        "tests/secrets/test_renamed.py",
    ),
    Fault(
        "Secrets: a call begins again whenever its catalog was renamed",
        "metastore/operation/seals.py",
        "if self.seals is None or self.mode is not _Mode.ALONE else",
        "if self.seals is not None or self.mode is not _Mode.ALONE else",
        "tests/secrets/test_renamed.py",
    ),
    Fault(
        "Secrets: a plain value is announced below another catalog than the one whose settings were looked at",
        "metastore/backends/sqlite/intents.py",
        "SELECT 1 FROM up WHERE id = ? AND scope_version = ?",
        "SELECT 1 FROM guard, (SELECT count(*) FROM up) WHERE id = ? AND scope_version = ?",
        "tests/contract/test_sealed_contract.py -k another_catalog",
    ),
    Fault(
        "Secrets: a replacement is announced under any settings",
        "metastore/operation/seals.py",
        "settled = self.settled if held else self._settled_anew(proposal.guards)",
        "settled = self._settled_anew(proposal.guards)\n        if held:\n            return proposal",
        "tests/secrets/test_renamed.py -k replacement",
    ),
    Fault(
        "Async: a call of many steps keeps all others from beginning",
        "metastore/aio/threads.py",
        "if self._taken % _TURN == 0:",
        "if self._taken % _TURN == _TURN:",
        "tests/aio/test_tasks.py -k keep_no_other",
    ),
    Fault(
        "Async: what a call has begun waits behind all that others begin",
        "metastore/aio/threads.py",
        "(self._urgent if urgent else self._others).append(job)",
        "self._others.append(job)",
        "tests/aio/test_tasks.py -k begun",
    ),
)
