"""Faults of the REST servers: requirements, files, rights."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_SERVERS"]

_CONFINED = "tests/iceberg/test_confined.py"
_OF_USERS = "tests/iceberg/test_folders_of_users.py"
_LIMITS = "tests/iceberg/test_limits.py"
_PLACES = "metastore/pyiceberg/places.py"

IN_SERVERS: tuple[Fault, ...] = (
    Fault(
        "Iceberg: a requirement that is false is merged away",
        "metastore/pyiceberg/rebase.py",
        "if moved and not merging:",
        "if False:",
        _CONFINED,
    ),
    Fault(
        "Iceberg: a manifest list that a client named is deleted",
        "metastore/pyiceberg/commits.py",
        "replaced = tuple(outlived(",
        "replaced = (*rebased.replaced, *outlived(",
        _CONFINED,
    ),
    Fault(
        "Iceberg: files are reached wherever a client says",
        "metastore/pyiceberg/confined.py",
        "if not all(any(reading.is_below(root) for root in self._roots) for reading in readings):",
        "if False:",
        _CONFINED,
    ),
    Fault(
        "Iceberg: a link leads out of the warehouse",
        "metastore/pyiceberg/confined.py",
        'path, bucket = os.path.realpath(path), ""',
        'bucket = ""',
        _CONFINED,
    ),
    Fault(
        "Iceberg: a purge deletes what the metadata names elsewhere",
        _PLACES,
        "return io if self._trusting else Confined(io, Folders((location,)))",
        "return io",
        _CONFINED,
    ),
    Fault(
        "Iceberg: a table keeps the folder of its old name",
        _PLACES,
        "        if self._trusting:\n            return begin\n",
        "        return begin\n",
        _CONFINED,
    ),
    Fault(
        "Iceberg: a staged create asks for no right",
        "metastore/pyiceberg/catalog.py",
        "            self._tables.try_create(table_names(identifier))\n",
        "            pass\n",
        _OF_USERS,
    ),
    Fault(
        "Iceberg: a commit writes files before its right is asked",
        "metastore/pyiceberg/commits.py",
        "        require_alter(self._store, current.entity)\n",
        "",
        _OF_USERS,
    ),
    Fault(
        "Server: any Host will do",
        "metastore/serve/gate.py",
        "if not self._authenticates and not _is_loopback(host):",
        "if False:",
        "tests/iceberg/test_gate.py",
    ),
    Fault(
        "Server: a page of another origin may ask",
        "metastore/serve/gate.py",
        "if origin is not None and",
        "if False and",
        "tests/iceberg/test_gate.py",
    ),
    Fault(
        "Server: a form is taken for JSON",
        "metastore/serve/web.py",
        "if kind not in _JSON:",
        "if False:",
        "tests/iceberg/test_gate.py",
    ),
    Fault(
        "Server: a proxy's header without the proxy's token",
        "metastore/serve/principals.py",
        "if owner is None and (self.header is None or self._demands_token):",
        "if owner is None and self.header is None:",
        "tests/iceberg/test_gate.py",
    ),
    Fault(
        "Iceberg: a user chooses the folder of another table",
        _PLACES,
        "if leads_out or part is None or part[2] != _mark(part[1], begin, user) or",
        "if leads_out or part is None or",
        _OF_USERS,
    ),
    Fault(
        "Iceberg: a user takes the folder that its table had long ago",
        _PLACES,
        "return abs(SYSTEM.micros() // 1000 - made) < _HOLDS",
        "return True",
        _OF_USERS,
    ),
    Fault(
        "Iceberg: a new table of a user names files of another",
        "metastore/pyiceberg/catalog.py",
        "            check_own_metadata(metadata)\n",
        "",
        _OF_USERS,
    ),
    Fault(
        "Jobs: a copy runs the jobs of the original",
        "metastore/jobs/queue.py",
        "return job.home is None or job.home == self.home(job)",
        "return True",
        "tests/jobs/test_copies.py",
    ),
    Fault(
        "Imports: what was made here is overwritten by Gravitino's entity of the same name",
        "metastore/imports/gravitino/run.py",
        "standing = Standing(target.columns, is_taken)",
        "standing = Standing(target.columns)",
        "tests/imports/test_gravitino_stays.py",
    ),
    Fault(
        "Imports: what is made here while an import runs is overwritten",
        "metastore/imports/gravitino/run.py",
        "only=ours",
        "only=None",
        "tests/imports/test_gravitino_stays.py",
    ),
    Fault(
        "Imports: what is gone there is dropped by its name, whatever has the name here by now",
        "metastore/imports/gravitino/follow.py",
        "return entity if entity.id == target.ids[key] else None",
        "return entity",
        "tests/imports/test_gravitino_stays.py",
    ),
    Fault(
        "Imports: an entity is committed without the row that says where it came from",
        "metastore/transfer/chunks.py",
        "and not first and",
        "and",
        "tests/transfer/test_into.py",
    ),
    Fault(
        "Imports: an entity that cannot be read any more counts as gone",
        "metastore/imports/gravitino/follow.py",
        " and key not in seen.left]",
        "]",
        "tests/imports/test_gravitino_stays.py",
    ),
    Fault(
        "Gravitino: a secret is shown that another one took the place of",
        "metastore/serve/gravitino/credentials.py",
        "store.reveal(holder, key, expected=value)",
        "store.reveal(holder, key)",
        "tests/gravitino/test_races.py",
    ),
    Fault(
        "Server: a byte now and then keeps a connection",
        "metastore/serve/limits.py",
        "return since is not None and now - since > self.limits.of(self._seen[0])",
        "return False",
        _LIMITS,
    ),
    Fault(
        "Server: idle connections keep others out",
        "metastore/serve/limits.py",
        "    min(waiting, key=lambda pair: pair[0])[1].cut()\n",
        "    new.refuse(_FULL)\n",
        _LIMITS,
    ),
    Fault(
        "Server: large bodies together have no size",
        "metastore/serve/web.py",
        "if size > _ON_THE_LOOP and self._in_flight > _IN_FLIGHT:",
        "if False:",
        _LIMITS,
    ),
    Fault(
        "Server: what a body held is not given back",
        "metastore/serve/web.py",
        "            self._in_flight -= counted\n",
        "            pass\n",
        _LIMITS,
    ),
    Fault(
        "Server: a certificate that is replaced is not read",
        "metastore/serve/tls.py",
        "        if state == self._seen:\n",
        "        if True:\n",
        _LIMITS,
    ),
    Fault(
        "Iceberg: a packed metadata file may unpack to any size",
        "metastore/pyiceberg/files.py",
        "                check_size(io, location, size)\n",
        "                pass\n",
        _LIMITS,
    ),
    Fault(
        "Iceberg: a writer that loses leaves its place in the line",
        "metastore/pyiceberg/commits.py",
        "(line is not None and sorted(line) == names and not line.is_over())",
        "False",
        "tests/iceberg/test_fidelity.py",
    ),
    Fault(
        "Iceberg: unknown fields of metadata are lost",
        "metastore/pyiceberg/sharing.py",
        'frozen=True, extra="allow")',
        "frozen=True)",
        "tests/iceberg/test_fidelity.py",
    ),
    Fault(
        "Jobs: a fetch goes on after its job was cancelled",
        "metastore/jobs/command.py",
        "if stop() is not None:",
        "if False:",
        "tests/jobs/test_commands.py -k fetch",
    ),
    Fault(
        "Jobs: the folder of a live server is removed",
        "metastore/jobs/folder.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "pass\n",
        "tests/jobs/test_commands.py -k killed_are",
    ),
)
