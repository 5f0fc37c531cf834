"""Where features meet: transactions and declarations, ids and gc, secrets and protocols, repeats and people."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_MEETINGS"]

IN_MEETINGS: tuple[Fault, ...] = (
    Fault(
        "a lost entity of a view of the past is taken for the one that has its id now",
        "metastore/managers/target.py",
        "if target.origin is None or target.origin.run is None or target.origin.run != here.run:",
        "if target.origin is None or target.origin.run != here.run:",
        "tests/past/test_as_of.py -k lost_entity",
    ),
    Fault(
        "the declaration of a transaction does not count for its next calls",
        "metastore/operation/seals.py",
        "if last is not None and last[0] == catalog.doc and last[1].catalog == own:",
        "if last is not None and last[1].catalog == own:",
        "tests/secrets/test_in_one_transaction.py",
    ),
    Fault(
        "a transaction takes an id that gc may have forgotten",
        "metastore/transaction/transaction.py",
        "            caller=self._caller,\n",
        "            caller=None,\n",
        "tests/operation/test_transaction_id.py -k forgotten",
    ),
    Fault(
        "a transaction that writes nothing leaves its id unknown",
        "metastore/transaction/transaction.py",
        "            if results == () and self._call.operation_id is not None:\n",
        "            if False:\n",
        "tests/operation/test_transaction_id.py -k nothing_was_written",
    ),
    Fault(
        "a repeated transaction that writes nothing is refused",
        "metastore/backends/memory/commit.py",
        "if commit.leaves_row or commit.claim else None",
        "if True else None",
        "tests/contract/test_exactly_once_contract.py -k 'finds_its_own_writes and memory'",
    ),
    Fault(
        "a client that writes back a handle destroys the secret",
        "metastore/secrets/names.py",
        "value.stored if isinstance(value, Secret) else value",
        "value",
        "tests/gravitino/test_hidden_properties.py -k writes_back",
    ),
    Fault(
        "Iceberg's protocol shows the plain secrets of a schema",
        "metastore/serve/iceberg/namespaces.py",
        '"properties": hiding_secrets(properties)}',
        '"properties": {**properties}}',
        "tests/gravitino/test_hidden_properties.py -k icebergs_protocol",
    ),
    Fault(
        "a lease whose last block ends is acquired again",
        "metastore/leases/lease.py",
        "            if not self._claims:",
        "            if False:",
        "tests/leases/test_blocks.py -k last_block_ends",
    ),
    Fault(
        "a task of Spark that runs again writes over what people did",
        "metastore/spark/once.py",
        'if store.outcome(operation).state == "committed":',
        "if False:",
        "tests/spark/test_bulk.py -k runs_again",
    ),
    Fault(
        "a user's create_many meets the name of a pending drop",
        "metastore/operation/authorized.py",
        "    if free and access.mine is None and not view.guess():\n",
        "    if False:\n",
        "tests/contract/test_kept_owners_contract.py -k pending_drop",
    ),
    Fault(
        "a repeat of a transaction whose answer is lost counts as applied",
        "metastore/transaction/transaction.py",
        "            if not self._is_own():\n",
        "            if False:\n",
        "tests/operation/test_transaction_id.py -k answer_is_lost",
    ),
    Fault(
        "a user cannot take up its own call that was withdrawn",
        "metastore/operation/record.py",
        " or first.action in CLAIMABLE  #",
        "  #",
        "tests/operation/test_transaction_id.py -k takes_up",
    ),
    Fault(
        "PyIceberg's catalog class writes a reference back as a plain text",
        "metastore/pyiceberg/naming.py",
        "str(key): str(stored(value))",
        "str(key): str(value)",
        "tests/iceberg/test_catalog.py -k written_back_keep",
    ),
    Fault(
        "a file of a job replaces another one of its name",
        "metastore/jobs/command.py",
        "    if os.path.lexists(target):\n",
        "    if False:\n",
        "tests/jobs/test_commands.py -k one_name",
    ),
)
