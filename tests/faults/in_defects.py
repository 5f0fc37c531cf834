"""The mends of the reviews' findings, taken out again one by one: the issue's lines, in their order."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_DEFECTS"]

_TRUST = "tests/contract/test_trust_contract.py"

_CORRECTNESS = (
    Fault(
        "an entity of another database is taken for one of this",
        "metastore/operation",
        "if origin.database != here.database and origin.database != backend.identify().database:",
        "if False:",
        f"{_TRUST} -k 'memory or sqlite'",
    ),
    Fault(
        "a container that create_many replaces does not guard itself",
        "metastore/managers",
        "guards |= {guard.id: guard for guard in decided.guards}",
        "guards |= {}",
        "tests/contract/test_freeze_contract.py tests/contract/test_own_guards_contract.py -k 'memory or sqlite'",
    ),
    Fault(
        "a restore does not look whether its entity is still the newest",
        "metastore/managers",
        "return replace(proposal, guards=guards, reads=(newest,))",
        "return proposal",
        "tests/concurrency/test_restores.py -k 'newest and sqlite'",
    ),
    Fault(
        "what gc forgot under a clock that was ahead stays forgotten",
        "metastore/backends/postgres",
        "OR forgotten > {NOW} + {MOST_AHEAD} RETURNING 1",
        "RETURNING 1",
        "tests/contract/test_clocks_contract.py -k postgres",
    ),
    Fault(
        "an error may rest on two instants",
        "metastore/managers",
        "if not view.guessed and not view.backend.hold(",
        "if False and not view.backend.hold(",
        "tests/contract/test_one_instant_contract.py -k 'memory or sqlite'",
    ),
    Fault(
        "a repeat invents who created what it returns",
        "metastore/operation",
        "if step.created_at is not None or step.seq is None or step.entity_id is None or made_here:",
        "if True:",
        "tests/contract/test_exactly_once_contract.py tests/contract/test_models_contract.py -k 'memory or sqlite'",
    ),
    Fault(
        "an entity of another database is reverted in this",
        "metastore/past/diff.py",
        "        return in_hand(reads, entity, lambda: entity.id)\n",
        "        return entity.id\n",
        f"{_TRUST} -k 'memory and (diff or revert)'",
    ),
    Fault(
        "a relation that is there already cannot be kept as a result",
        "metastore/operation",
        "if isinstance(value, Attached):",
        "if False:",
        "tests/contract/test_exactly_once_contract.py -k 'already and memory'",
    ),
    Fault(
        "the time of a cancelled job is an argument of its caller",
        "metastore/kinds/job/run.py",
        'frozenset({"at"})',
        "frozenset()",
        "tests/contract/test_exactly_once_contract.py -k 'cancelled and memory'",
    ),
    Fault(
        "nobody notices a sequence that hands out several numbers",
        "metastore/backends/postgres",
        "AND seqcache <> 1",
        "AND seqcache < 1",
        "tests/bad_input/test_sessions.py",
    ),
)

_SECURITY = (
    Fault(
        "array_nulls is left as it is",
        "metastore/backends/postgres/settings.py",
        '"array_nulls": "on",',
        "",
        "tests/bad_input/test_sessions.py",
    ),
    Fault(
        "the URL may set client_encoding",
        "metastore/backends/postgres/settings.py",
        "if key in _REFUSED:",
        "if False:",
        "tests/bad_input/test_urls.py tests/bad_input/test_sessions.py",
    ),
    Fault(
        "a circle of parents is followed for ever by a search",
        "metastore/backends/sql/find.py",
        "WHERE u.parent_id <> 0 AND u.height < {DEEPEST}",
        "WHERE u.parent_id <> 0",
        "tests/bad_input/test_damaged_rows.py -k circle --timeout 60",
    ),
    Fault(
        "an export is written over the file that is there",
        "metastore/transfer/files.py",
        "beside = path.parent / (path.name + PARTIAL)",
        "beside = path",
        "tests/transfer",
    ),
    Fault(
        "a principal has no limit",
        "metastore/operation",
        "if len(text) > MAX_PRINCIPAL:",
        "if False:",
        "tests/bad_input",
    ),
    Fault(
        "a crawl follows links out of the lake",
        "metastore/crawl/files",
        "inside = None if follow_links else [",
        "inside = None if True else [",
        "tests/crawl/test_discover.py",
    ),
    Fault(
        "an ORC footer has no limit",
        "metastore/crawl/read",
        "unpacked > _FOOTER:",
        "False:",
        "tests/crawl/test_more_formats.py -k unpacks",
    ),
    Fault(
        "--json prints what a terminal obeys",
        "metastore/cli/output.py",
        '_OBEYED = re.compile("[\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")',
        '_OBEYED = re.compile("[\\ud800-\\udfff]")',
        "tests/cli/test_cli.py -k json_holds",
    ),
    Fault(
        "an integer of any length reaches a database",
        "metastore/arguments.py",
        "if number is None or abs(number) > _LARGEST:",
        "if number is None:",
        "tests/bad_input/test_numbers.py",
    ),
)

_USERS = (
    Fault(
        "a change leaves a declared field with a wrong type",
        "metastore/kinds/declared.py",
        "check_doc=lambda doc, before: _check_doc(name, own, doc, before),",
        "check_doc=None,",
        "tests/contract/test_declared_kinds_contract.py -k memory",
    ),
    Fault(
        "a refused permission is tried again",
        "retry",
        '"42501": Consequence.REFUSED,',
        '"42501": Consequence.UNAVAILABLE,',
        "tests/retry/test_classify.py",
    ),
    Fault(
        "a detach may read all relations",
        "metastore/backends/postgres/relations.py",
        "r.from_id = w.id AND r.kind = %(kind)s::text AND r.slot = w.slot",
        "r.from_id = %(id)s::bigint AND r.kind = %(kind)s::text AND r.slot = %(slot)s::bigint",
        "tests/grow/test_costs.py -k detach",
    ),
    Fault(
        "a search in a small scope reads all names",
        "metastore/managers/find.py",
        "if sizes.below * weight <= most:",
        "if False:",
        "tests/grow/test_costs.py -k scope",
    ),
    Fault(
        "a follower remembers each commit for ever",
        "metastore/feed/tracked.py",
        "self._begun.discard(step.operation_id)",
        "pass",
        "tests/grow/test_costs.py -k follower",
    ),
    Fault(
        "gc looks at what is gone again and again",
        "metastore/gc.py",
        "after = gone[-1]\n        for entity_id",
        "gone = gone[:1]\n        after = gone[-1]\n        for entity_id",
        "tests/grow/test_costs.py -k gc",
    ),
    Fault(
        "gc deletes dropped trees one by one",
        "metastore/gc.py",
        "deleted += delete_trees(backend, [one.id for one in gone if one.id not in pending])",
        "deleted += sum(delete_trees(backend, [one.id]) for one in gone if one.id not in pending)",
        "tests/grow/test_costs.py -k passes_once",
    ),
    Fault(
        "a user's search reads hidden matches again and again",
        "metastore/managers/find.py",
        "few = search.by_name and batch.fit",
        "few = search.by_name and len(batch.records)",
        "tests/grow/test_costs.py -k does_not_see_once",
    ),
    Fault(
        "SQLite: a user's rights are looked for among all guards",
        "metastore/backends/sqlite/reads.py",
        'join="CROSS JOIN {table}',
        'join="JOIN {table}',
        "tests/grow/test_costs.py -k rights_cost",
    ),
    Fault(
        "SQLite: the relations of one are looked for among all",
        "metastore/backends/sqlite/reads.py",
        'join="CROSS JOIN {table}',
        'join="JOIN {table}',
        "tests/grow/test_costs.py -k relations_of_one",
    ),
    Fault(
        "a search below a catalog that folds case is exact",
        "metastore/managers/find.py",
        "search = Search(self._top.id, self.wanted.kind, glob, fold(glob),",
        "search = Search(self._top.id, self.wanted.kind, glob, glob,",
        "tests/contract/test_search_contract.py -k 'folds and memory'",
    ),
)

_CHECKER = (
    Fault(
        "the checker overlooks a document that loses a commit",
        "metastore/checker",
        "if event.wrong is not None:",
        "if False:",
        "tests/checker/test_originals.py",
    ),
    Fault(
        "the checker overlooks that a container had children",
        "metastore/checker/sweep.py",
        """return (*steps, (CHILDREN, "")) if of == "children" else steps""",
        "return steps",
        "tests/checker/test_originals.py -k not_empty",
    ),
    Fault(
        "the checker overlooks that new operation ids are refused",
        "metastore/checker/justice.py",
        "elif operation.start - (self._refused.end or 0) > _MENDED:",
        "elif False:",
        "tests/checker/test_originals.py -k 7",
    ),
    Fault(
        "the checker overlooks a write inside of a freeze",
        "metastore/checker",
        "if scope is not None and scope in self._above(event):",
        "if False:",
        "tests/checker/test_originals.py",
    ),
)

IN_DEFECTS: tuple[Fault, ...] = (*_CORRECTNESS, *_SECURITY, *_USERS, *_CHECKER)
