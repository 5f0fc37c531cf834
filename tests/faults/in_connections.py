"""Faults of the connections to PostgreSQL: what an answer is worth, how a commit is sent, which server is asked."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_CONNECTIONS"]

_PG = "metastore/backends/postgres"
_STOPPED = "tests/concurrency/test_stopped_waits.py"
_HALF_SENT = "tests/concurrency/test_half_sent.py"
_SILENCE = "tests/concurrency/test_silence.py"
_WIRE = "tests/concurrency/test_wire.py"
_REPLICA = "tests/cache/test_replica.py"
_WAKING = "tests/operation/test_waking.py"

_CONFIRMATIONS = (
    Fault(
        "PostgreSQL: a stopped wait for a replica counts as a confirmation",
        f"{_PG}/connection.py",
        "if self._doubt.unconfirmed:",
        "if False:",
        f"{_STOPPED} -k 'said or batch or renewed or member or restore'",
    ),
    Fault(
        "PostgreSQL: the warning of a stopped wait is known by its English text",
        f"{_PG}/doubt.py",
        "return bool({*where} & {*_WAITS})",
        'return "synchronous replication" in str(notice.message_primary)',
        f"{_STOPPED} -k known_by",
    ),
    Fault(
        "PostgreSQL: a write that is sent again is not confirmed",
        f"{_PG}/reads.py",
        "                if writes:\n",
        "                if False:\n",
        f"{_STOPPED} -k said",
    ),
    Fault(
        "PostgreSQL: what a helper applied counts before a replica has it",
        f"{_PG}/backend.py",
        "if confirms and own is not None and own.action != PENDING:",
        "if False:",
        f"{_STOPPED} -k helper",
    ),
    Fault(
        "a call whose time is over takes a helper's commit for confirmed",
        "metastore/operation/record.py",
        "doubtful = self.is_repeat or self.pending_on is not None",
        "doubtful = self.is_repeat",
        f"{_STOPPED} -k helper",
    ),
    Fault(
        "PostgreSQL: a migration that no replica has is a success",
        "migrations/__init__.py",
        "if not confirmed():",
        "if False:",
        f"{_STOPPED} -k migration",
    ),
)

_MESSAGES = (
    Fault(
        "PostgreSQL: a batch is executed while it is sent",
        f"{_PG}/wire.py",
        'results = self._results(b";\\n".join([*prepares, *executes]))',
        "send = lambda one: _sent(self._connection.pgconn, lambda pgconn: pgconn.send_query(one))\n"
        '        parts = [b"BEGIN", *prepares, *executes, b"COMMIT"]\n'
        "        results = [self._connection.wait(send(one))[-1] for one in parts][1:-1]",
        f"{_HALF_SENT} -k batch",
    ),
    Fault(
        "PostgreSQL: a statement without its end keeps its locks",
        f"{_PG}/connect.py",
        "        if connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT:\n",
        "        if False:\n",
        f"{_HALF_SENT} -k 'in_time or notices'",
    ),
    Fault(
        "PostgreSQL: the server does not notice that a client is gone",
        f"{_PG}/connect.py",
        'if name.startswith("keepalives_"))',
        "if False)",
        f"{_HALF_SENT} -k notices",
    ),
    Fault(
        "PostgreSQL: nothing ends a statement without its end at an older server, or behind a pooler",
        f"{_PG}/connect.py",
        "if pooled or connection.info.server_version < _HAS_TRANSACTION_TIMEOUT:",
        "if False:",
        f"{_HALF_SENT} -k lacks_its_end",
    ),
    Fault(
        "PostgreSQL: an older server gets what is prepared in several messages",
        f"{_PG}/wire.py",
        "        if self._connection.simple:\n",
        "        if False:\n",
        f"{_HALF_SENT} -k lacks_its_end",
    ),
    Fault(
        "PostgreSQL: what an interrupt leaves running goes on",
        f"{_PG}/connect.py",
        "            connection.stop_what_was_left()  # otherwise",
        "            pass  # else",
        f"{_SILENCE} -k leaves_running",
    ),
    Fault(
        "PostgreSQL: an order to stop that overtakes what an interrupt left behind is the only one",
        f"{_PG}/connect.py",
        "            connection.stop_what_was_left()  # otherwise",
        "            connection.stop()  # else",
        f"{_SILENCE} -k leaves_running",
    ),
    Fault(
        "PostgreSQL: an order to stop that overtakes the statement is the only one",
        f"{_PG}/connection.py",
        "            if now() <= ends:\n",
        "            if False:\n",
        f"{_SILENCE} -k may_overtake",
    ),
    Fault(
        "PostgreSQL: a kept session that is dead holds its next user up for ever",
        f"{_PG}/connect.py",
        "                with self.in_time():  # limited, because a kept",
        "                if True:  # limited, because a kept",
        f"{_SILENCE} -k kept",
    ),
    Fault(
        "PostgreSQL: a batch that fails forgets what it prepared",
        f"{_PG}/wire.py",
        "self._names.update(list(new.items())[: len(done)])",
        "self._names.update(new if len(done) == len(results) else {})",
        f"{_WIRE} -k 'leave_nothing or remembers'",
    ),
    Fault(
        "PostgreSQL: a batch that fails remembers what it did not prepare",
        f"{_PG}/wire.py",
        "self._names.update(list(new.items())[: len(done)])",
        "self._names.update(new)",
        f"{_WIRE} -k remembers",
    ),
)

_SERVERS = (
    Fault(
        "PostgreSQL: a view goes on with a replica that was promoted",
        f"{_PG}/doubt.py",
        "return self._was_standby and not self._is_standby()",
        "return False",
        f"{_REPLICA} -k 'promoted and direct'",
    ),
    Fault(
        "PostgreSQL: a view goes on with a promoted replica behind a pooler",
        f"{_PG}/connect.py",
        "if error is None and connection.asks:",
        "if False:",
        f"{_REPLICA} -k 'promoted and pooled'",
    ),
    Fault(
        "a new view reads a replica that was promoted",
        "metastore/replicas/source.py",
        "if not (shown.replica or self._primary):",
        "if False:",
        f"{_REPLICA} -k 'promoted and direct'",
    ),
    Fault(
        "PostgreSQL: of several servers any is read",
        f"{_PG}/settings.py",
        "if leads_to_several(url):",
        "if False:",
        f"{_REPLICA} -k several_servers",
    ),
    Fault(
        "PostgreSQL: an address that leads to a replica later is read",
        f"{_PG}/connect.py",
        "self._needs_primary = self._needs_primary or not (replica or self._replica)",
        "pass",
        f"{_REPLICA} -k leads_to_a_replica_later",
    ),
)

_POOL = (
    Fault(
        "Pool: an interrupt between the lines that close a connection makes its place useless",
        "metastore/backends/sql/pool.py",
        "is_ready = place.connection is not None and (place.settled or",
        "is_ready = (place.settled or",
        "tests/interrupts/test_blocks.py -k used_again",
    ),
)
_NOTICES = (
    Fault(
        "Notices: a waiter that hears rests on them",
        f"{_PG}/waking.py",
        "waker.wait(longest if now - self._noted < _AGAIN else seconds)",
        "waker.wait(3600.0)",
        f"{_WAKING} -k lost",
    ),
    Fault(
        "Notices: they are told in the commit",
        f"{_PG}/wire.py",
        'executes = [b"BEGIN", *executes[:-1], b"COMMIT", executes[-1]]',
        'executes = [b"BEGIN", *executes, b"COMMIT"]',
        f"{_WAKING} -k fails_behind",
    ),
    Fault(
        "Notices: they are told before the commit",
        f"{_PG}/wire.py",
        'executes = [b"BEGIN", *executes[:-1], b"COMMIT", executes[-1]]',
        'executes = [b"BEGIN", executes[-1], *executes[:-1], b"COMMIT"]',
        f"{_WAKING} -k 'woken or before'",
    ),
    Fault(
        "Notices: a commit that lost tells the owner of its own ticket",
        f"{_PG}/waking.py",
        "WHERE head <> coalesce(%(ticket)s::bigint, 0)",
        "WHERE head > 0",
        f"{_WAKING} -k before",
    ),
    Fault(
        "Notices: one is sent though nobody waits",
        f"{_PG}/waking.py",
        "WHERE name IS NOT NULL HAVING count(*) > 0",
        "WHERE name IS NOT NULL",
        f"{_WAKING} -k pays",
    ),
    Fault(
        "Notices: a commit that fails with one behind it leaves a transaction",
        f"{_PG}/wire.py",
        'self._results(b"ROLLBACK")',
        "pass",
        f"{_WAKING} -k fails_behind",
    ),
    Fault(
        "Notices: what comes between a look and the wait is forgotten",
        f"{_PG}/waking.py",
        "                self._heard[name] = None\n",
        "",
        f"{_WAKING} -k process_listens",
    ),
)

IN_CONNECTIONS: tuple[Fault, ...] = (*_CONFIRMATIONS, *_MESSAGES, *_SERVERS, *_POOL, *_NOTICES)
