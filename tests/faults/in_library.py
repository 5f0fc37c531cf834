"""Faults of the library above the backends: names, operations, transactions, columns, files, crawler, command line."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_LIBRARY"]

_OPERATION, _MANAGERS, _TRANSACTION = "metastore/operation", "metastore/managers", "metastore/transaction"

_NAMES = (
    Fault(
        "names are not normalised",
        "metastore",
        'return unicodedata.normalize("NFC", name)\n',
        "return name\n",
        "tests/bad_input/test_names.py -k normalise",
    ),
    Fault(
        "a blank at an end is not quoted",
        "metastore",
        " or n != n.strip() else n",
        " else n",
        "tests/unit/test_names.py",
    ),
    Fault(
        "a folding catalog compares letters exactly",
        "metastore",
        "return fold(name) if parent.fold else name",
        "return name",
        "tests/contract/test_managers_contract.py -k Folding",
    ),
    Fault(
        "only the parent is guarded",
        "metastore",
        "return tuple([Guard(n.id, n.scope_version) for n in nodes]) or",
        "return tuple([Guard(n.id, n.scope_version) for n in nodes[-1:]]) or",
        "tests/contract/test_moving_contract.py tests/contract/test_remembered_parents_contract.py"
        " tests/contract/test_in_hand_contract.py -k memory",
    ),
    Fault(
        "a move guards what it read last",
        "metastore",
        "[Guard(*pair) for pair in Scopes([(g.id, g.scope_version) for c in chains for g in guards_of(c)]).pairs]",
        "[*{g.id: g for c in chains for g in guards_of(c)}.values()]",
        "tests/contract/test_moving_contract.py -k common_ancestor",
    ),
    Fault(
        "a container does not guard itself",
        "metastore",
        "if kind_named(own.kind).container else guards",
        "if False else guards",
        "tests/contract/test_own_guards_contract.py",
    ),
    Fault(
        "only the parent must be in use",
        "metastore",
        "if not node.in_use:",
        "if not node.in_use and n == len(nodes) - 1:",
        "tests/contract/test_restore_contract.py -k 'InUse and memory'",
    ),
    Fault(
        "an entity moves below itself",
        _MANAGERS,
        "if any(n.id == own for n in nodes[: len(wanted) - 1]):",
        "if False:",
        "tests/contract/test_moving_contract.py -k 'below_itself and memory'",
    ),
)

_PROGRESS = (
    Fault(
        "after a lost answer what no replica has confirmed is said to be applied",
        _OPERATION,
        "if claim is None:  # its answer",
        "if False:  # its answer",
        "tests/concurrency/test_unconfirmed.py -k batch",
    ),
    Fault(
        "a repeat says that what no replica has confirmed is applied",
        _OPERATION,
        "if self.is_repeat or self.pending_on is not None:",
        "if self.pending_on is not None:",
        "tests/concurrency/test_unconfirmed.py -k batch",
    ),
    Fault(
        "what a dead operation marked stays marked",
        _OPERATION,
        "if one.seconds < 0 and one.mark is not None:",
        "if False:",
        "tests/contract/test_marks_contract.py tests/contract/test_left_behind_contract.py -k memory",
    ),
    Fault(
        "an intent lands on another path",
        _OPERATION,
        "if (fold(name) != fold(node.name)) if above else name != node.name:",
        "if False:",
        "tests/contract/test_intents_contract.py tests/progress/test_moved.py -k 'memory or sqlite'",
    ),
    Fault(
        "an intent is applied after its deadline",
        _OPERATION,
        "if intent.deadline is not None and intent.deadline < now:",
        "if False:",
        "tests/contract/test_intents_contract.py tests/progress/test_parked.py -k 'memory or sqlite'",
    ),
    Fault(
        "an intent is announced without its path",
        _OPERATION,
        "path=None if merge.names is None else format_path(merge.names),",
        "path=None,",
        "tests/progress/test_moved.py tests/contract/test_intents_contract.py",
    ),
    Fault(
        "an operation id is taken for other arguments",
        _OPERATION,
        "raise OperationIdReused(self.id)",
        "pass",
        "tests/contract/test_exactly_once_contract.py -k 'Arguments and memory'",
    ),
    Fault(
        "a change that leaves all as it is writes a version",
        _OPERATION,
        "return None if equal(text, after, doc, same_order=_order(doc) == before) else after",
        "return after",
        "tests/contract/test_alter_contract.py -k memory",
    ),
    Fault(
        "what a transaction returned is trusted before its commit",
        _TRANSACTION,
        "Origin(self._base.origin.database, committed=False)",
        "Origin(self._base.origin.database, committed=True)",
        "tests/contract/test_trust_contract.py -k memory",
    ),
    Fault(
        "a transaction looks again beside the writers below a parent",
        _TRANSACTION,
        "exclusive=i in barred, bump",
        "exclusive=False, bump",
        "tests/unit/test_read_set.py",
    ),
    Fault(
        "a transaction does not validate the rows that it read",
        _TRANSACTION,
        "*[Expect(i, version) for i, version in self.entities.items() if i not in written],",
        "",
        "tests/contract/test_transactions_contract.py tests/contract/test_freeze_contract.py -k memory",
    ),
    Fault(
        "a connection that ended says that nothing was applied",
        "retry",
        "if sqlstate is None:\n        return Consequence.UNKNOWN",
        "if sqlstate is None:\n        return Consequence.RETRY",
        "tests/retry/test_classify.py",
    ),
    Fault(
        "one attempt more than allowed",
        "retry",
        "self.number >= self._policy.attempts",
        "self.number > self._policy.attempts",
        "tests/retry/test_runner.py",
    ),
    Fault(
        "a lease lasts by the slowest clock",
        "metastore/leases",
        "return self._ttl - max(",
        "return self._ttl - min(",
        "tests/leases/test_holding.py tests/leases/test_schedules.py",
    ),
    Fault(
        "a call that is made again has a new deadline",
        "metastore/operation/operation.py",
        "        effort.ends = row.ends\n",
        "",
        "tests/secrets/test_again.py",
    ),
    Fault(
        "a request that travels has a new deadline",
        "metastore/combine/waiting.py",
        "started + min(deadline, remaining(session.clock, deadline))",
        "started + deadline",
        "tests/secrets/test_again.py",
    ),
)

_FEED = (
    Fault(
        "what gc took from the feed is not missed",
        "metastore/feed",
        "if collected > seq:",
        "if False:",
        "tests/contract/test_gc_contract.py tests/concurrency/test_feed.py -k 'memory or sqlite'",
    ),
    Fault(
        "a position that a backup took away is taken",
        "metastore/feed",
        "or _mark(operation_id) == mark:",
        "or True:",
        "tests/migration/test_put_back.py -k sqlite",
    ),
    Fault(
        "changes of a path whose beginning is the same",
        "metastore/feed",
        "return _folded(path[: len(self.names)], self.exact) == self.names",
        "return format_path(path).startswith(format_path(self.names))",
        "tests/contract/test_pages_contract.py -k memory",
    ),
    Fault(
        "verify sees no event of nothing",
        "metastore/verify",
        'yield Violation(8, None, path, f"position {seq} (operation {operation}) is of no entity")',
        "pass",
        "tests/verify/test_verify.py -k sqlite",
    ),
    Fault(
        "verify sees no second entity of one name",
        "metastore/verify",
        "if (parent_id, family, key) == taken:",
        "if False:",
        "tests/verify/test_verify.py -k sqlite",
    ),
)

_CONTENT = (
    Fault(
        "the id of a dropped column is used again",
        "metastore/columns",
        'doc["last_column_id"] = next(ids) - 1',
        "next(ids)",
        "tests/unit/test_columns.py tests/unit/test_table_changes.py",
    ),
    Fault(
        "a renamed column leaves its references behind",
        "metastore/kinds/table",
        "        rename_references(doc, names, new)\n",
        "",
        "tests/unit/test_table_changes.py tests/unit/test_layout.py",
    ),
    Fault(
        "a dropped column leaves its references behind",
        "metastore/kinds/table",
        '        _check_references(doc, f"the column {format_path(names)} cannot be dropped")\n',
        "",
        "tests/unit/test_table_changes.py tests/unit/test_layout.py",
    ),
    Fault(
        "the hash of an export depends on the order of properties",
        "metastore/transfer",
        'json.JSONEncoder(separators=(",", ":"), sort_keys=True)',
        'json.JSONEncoder(separators=(",", ":"))',
        "tests/transfer/test_round_trip.py -k one_byte",
    ),
    Fault(
        "an import takes one name twice",
        "metastore/transfer",
        "if digest in self._seen:",
        "if False:",
        "tests/transfer/test_into.py tests/transfer/test_bad_input.py",
    ),
    Fault(
        "an import replaces what was to be left",
        "metastore/transfer",
        'if stored is not None and (if_exists == "return" or ',
        "if stored is not None and (False or ",
        "tests/transfer/test_into.py",
    ),
    Fault(
        "a crawl takes back what people edited",
        "metastore/crawl",
        'edited = then.get("type") == now.type and then.get("kept") != there.type',
        "edited = False",
        "tests/crawl/test_plan.py",
    ),
    Fault(
        "an older listing writes over a newer one",
        "metastore/crawl",
        "return row is not None and 0 < listed < row.listed",
        "return False",
        "tests/crawl/test_overlapping.py",
    ),
    Fault(
        "a crawl takes what it did not list for gone",
        "metastore/crawl",
        "if not is_gone(row.location, seen.options):",
        "if False:",
        "tests/crawl/test_gone.py",
    ),
    Fault(
        "a crawl removes partitions that it did not list",
        "metastore/crawl",
        "gone = [name for name in missing if is_gone(location_of(join(dataset.location, name)))]",
        "gone = list(missing)",
        "tests/crawl/test_gone.py",
    ),
    Fault(
        "a later page that is not found ends a listing",
        "metastore/crawl",
        "filesystem.get_file_info(FileSelector(inside, recursive=True))\n    except (OSError",
        "filesystem.get_file_info(FileSelector(inside, recursive=True, allow_not_found=True))\n    except (OSError",
        "tests/crawl/test_gone.py",
    ),
    Fault(
        "a crawl writes over what people wrote on a partition",
        "metastore/crawl",
        "if table is None or stored is None or not (plan.parts or plan.removed):",
        "if True:",
        "tests/crawl/test_edits.py",
    ),
    Fault(
        "a crawl removes a partition without files on which people wrote",
        "metastore/crawl",
        "return self.measured or bool(self.properties.keys() - PART_PROPERTIES)",
        "return False",
        "tests/crawl/test_edits.py",
    ),
    Fault(
        "a crawl drops what people have tagged",
        "metastore/crawl",
        "return related or any(",
        "return any(",
        "tests/crawl/test_edits.py",
    ),
    Fault(
        "a lake that is not mounted is taken for moved",
        "metastore/crawl",
        "return below and is_gone(location, self.options)",
        "return is_gone(location, self.options)",
        "tests/crawl/test_commit.py",
    ),
    Fault(
        "a crawl removes the partitions of people",
        "metastore/crawl",
        "if _OWNED_BY in stored.parts[name].properties:",
        "if True:",
        "tests/crawl/test_plan.py",
    ),
    Fault(
        "a crawl brings back the columns that people dropped",
        "metastore/crawl",
        "elif column.name not in self.before:",
        "else:",
        "tests/crawl/test_plan.py",
    ),
    Fault(
        "a decimal that no type holds",
        "metastore/crawl",
        "if precision <= 38 else None",
        "if precision <= 76 else None",
        "tests/crawl/test_widen.py",
    ),
    Fault(
        "a terminal obeys a name",
        "metastore/cli",
        '("Cc", "Cs", "Zl", "Zp")',
        '("Cs", "Zl", "Zp")',
        "tests/cli/test_cli.py",
    ),
    Fault(
        "a URL is shown with its password",
        "metastore/urls.py",
        "render_as_string(hide_password=True)",
        "render_as_string(hide_password=False)",
        "tests/bad_input/test_urls.py -k shown",
    ),
)

IN_LIBRARY: tuple[Fault, ...] = (*_NAMES, *_PROGRESS, *_FEED, *_CONTENT)
