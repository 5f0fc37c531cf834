"""What errors say to programs: a code of their own, an HTTP status, when to try again, and plain JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

import metastore as ms
from metastore import errors
from tests.packaging.test_borrowed import our_classes

OPERATION = uuid4()
SAMPLES = [
    ms.InvalidArgument("no"),
    ms.OperationIdReused(OPERATION),
    ms.StoreClosed(),
    ms.EntityNotFound("lake.a"),
    ms.EntityAlreadyExists("lake.a"),
    ms.NotEmpty("lake.a has children"),
    ms.NotInUse("lake is disabled"),
    ms.PermissionDenied("ann@corp", "modify_table", "lake.a"),
    ms.VersionConflict("lake.a", 1, 2),
    ms.DeadlineExceeded("over"),
    ms.RetriesExhausted("no more"),
    ms.ScopeFrozen(OPERATION),
    ms.LeaseHeld("nightly", "ada", datetime(2026, 1, 1, tzinfo=UTC)),
    ms.LeaseLost("nightly", 4),
    ms.OutcomeUnknown(OPERATION),
    ms.BackendUnavailable("away"),
    ms.UnreadableRow("version 2 of lake.a", "no JSON", kind="table", entity_id=7, version=2),
    ms.MigrationNeeded("old"),
]


def _classes(cls: type[ms.MetastoreError] = ms.MetastoreError) -> Iterator[type[ms.MetastoreError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _classes(below)


PLAIN = {cls for cls in _classes() if cls.__module__ == "metastore.errors"} - {type(e) for e in SAMPLES}
"""What takes a message and nothing else."""


def test_every_class_has_a_code_and_a_status_of_its_own() -> None:
    list(our_classes())  # all modules are imported: a class is one wherever it is declared
    classes = [cls for cls in _classes() if cls.__module__.startswith("metastore.") and cls.__name__[0] != "_"]
    for cls in classes:
        assert {"code", "http_status"} <= vars(cls).keys() or cls is ms.MetastoreError, cls
        assert 400 <= cls.http_status < 600, cls
        assert cls.retry_after is None or cls.retry_after > 0, cls
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    assert all(code.isidentifier() and code.islower() for code in codes)


def test_every_public_error_is_exported() -> None:
    assert set(errors.__all__) <= set(ms.__all__)
    assert {cls.__name__ for cls in _classes() if cls.__module__ == "metastore.errors"} == set(errors.__all__)


@pytest.mark.parametrize(
    "error",
    [*SAMPLES, *(cls("why") for cls in sorted(PLAIN, key=lambda cls: cls.__name__))],
    ids=lambda e: type(e).__name__,
)
def test_to_dict_is_plain_json(error: ms.MetastoreError) -> None:
    shown = error.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert list(shown) == ["code", "message", "http_status", "retry_after", "details"]
    assert (shown["code"], shown["message"], shown["http_status"]) == (error.code, str(error), error.http_status)
    copied = pickle.loads(pickle.dumps(error))
    assert copied.to_dict() == shown


def test_details_are_the_error_s_own_attributes() -> None:
    assert ms.VersionConflict("lake.a", 1, 2).to_dict()["details"] == {"path": "lake.a", "expected": 1, "found": 2}
    assert ms.ScopeFrozen(OPERATION).to_dict()["details"] == {"operation": str(OPERATION)}
    held = ms.LeaseHeld("nightly", "ada", datetime(2026, 1, 1, tzinfo=UTC)).to_dict()["details"]
    assert held == {"name": "nightly", "owner": "ada", "expires_at": "2026-01-01T00:00:00+00:00"}
    odd = ms.VersionConflict("lake.a", object, 2)  # no JSON value: shown as a text
    odd.add_note("a note is for people")
    assert odd.to_dict()["details"] == {"path": "lake.a", "expected": str(object), "found": 2}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ms.BackendUnavailable("cannot connect to db.corp:5432"), "does not answer now"),
        (ms.BackendRefused("db.corp:5432 is read-only for ada"), "refuses this"),
        (ms.PoolExhausted("all 3 are in use"), "all 3 are in use"),
        (ms.VersionConflict("a.b", 1, 2), "a.b"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_client_does_not_learn_where_the_database_is(error: ms.MetastoreError, said: str) -> None:
    assert said in errors.for_clients(error)
    assert "db.corp" not in errors.for_clients(error)
