"""What is in hand when commits were lost, and what a revert or a renewal may still need."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_LOST"]

_EVERY = "tests/bad_input/test_every_method.py -k 'a_lost_entity and"

IN_LOST: tuple[Fault, ...] = (
    Fault(
        "a lost entity is taken for the one that has its id now",
        "metastore/managers/target.py",
        "        if target.origin is None or target.origin.run is None or target.origin.run != here.run:\n",
        "        if False:\n",
        f"{_EVERY} history'",
    ),
    Fault(
        "a lost entity of a transaction is taken for the one that has its id now",
        "metastore/operation/request.py",
        "origin.written_at if origin.drafted else",
        "None if origin.drafted else",
        f"{_EVERY} transaction and history'",
    ),
    Fault(
        "a lost drop in steps gives the entity that has its target's id now",
        "metastore/managers/drops/pending.py",
        "and read_same(backend, drop) is None:",
        "and False:",
        "tests/concurrency/test_timelines.py -k lost_entity",
    ),
    Fault(
        "gc deletes the tags of columns that a revert under way brings back",
        "metastore/gc.py",
        "*[pin.seq for pin in pins]",
        "*[pin.seq for pin in pins[:0]]",
        "tests/past/test_relations.py -k 'gc_beside_a_revert and sqlite'",
    ),
    Fault(
        "gc deletes the tags of dropped columns at once",
        "metastore/gc.py",
        "if column not in kept.get(entity_id, [column])]",
        "]",
        "tests/past/test_relations.py -k 'gc_keeps and sqlite'",
    ),
    Fault(
        "a renewal that was answered late puts an older validity in the place of a newer one",
        "metastore/leases/hold.py",
        "            if (later and ttl < known.ttl) or renewed.left() > known.left():\n",
        "            if True:\n",
        "tests/leases/test_blocks.py",
    ),
    Fault(
        "a renewal that the database did last does not shorten the lease",
        "metastore/leases/hold.py",
        "            if (later and ttl < known.ttl) or renewed.left() > known.left():\n",
        "            if renewed.left() > known.left():\n",
        "tests/leases/test_blocks.py",
    ),
    Fault(
        "a call that lost attempts until its deadline says that it got no connection",
        "retry/runner.py",
        "        except (DeadlineExceeded, PoolExhausted) as error:\n",
        "        except DeadlineExceeded as error:\n",
        "tests/retry/test_runner.py -k no_connection",
    ),
    Fault(
        "a secret that begins with secret: is taken for a reference",
        "metastore/secrets/declared.py",
        "as_secret(value) is None",
        'not value.startswith("secret:")',
        "tests/secrets/test_bound.py",
    ),
    Fault(
        "an export keeps relations that lead to what it leaves out",
        "metastore/transfer/content.py",
        "        if self._unreadable is None or not ids:\n",
        "        if True:\n",
        "tests/bad_input/test_damaged_rows.py -k export",
    ),
)
