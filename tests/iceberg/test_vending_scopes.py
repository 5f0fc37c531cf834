"""What a short-lived key of Azure or of Google may open: one table's folder, by the user's rights on it."""

from __future__ import annotations

from typing import Any

import pytest

from metastore.serve.iceberg.boundary import rules
from metastore.serve.iceberg.directory import Directory, directory
from metastore.serve.iceberg.rights import READS, RIGHTS, WRITES
from tests.servers.cel import allows

HOST = "lake.dfs.core.windows.net"
PLACE = f"abfss://files@{HOST}"
ODD = ["t", "t*", "a'b", 'a"b', "a') || true || ('", "Zürich 東", "100%", "a..b", ".a", "*", "(", "a b"]


@pytest.mark.parametrize("name", ODD)
def test_a_directory_is_the_whole_path(name: str) -> None:
    assert directory(f"{PLACE}/lake/{name}", [READS], HOST) == Directory("files", f"lake/{name}", "rl")
    assert directory(f"abfs://files@{HOST}/lake/{name}/", [WRITES], HOST) == Directory("files", f"lake/{name}", "acwd")
    assert directory(f"{PLACE}/lake/{name}", RIGHTS, HOST) == Directory("files", f"lake/{name}", "racwdl")


BAD = [
    "a?b",
    "a?",
    "a#b",
    "a/../b",
    "../a",
    "..",
    ".",
    "a//b",
    "/a",
    "a%2Fb",
    "%2e%2e/a",
    "a%5cb",
    "a\nb",
    "a\x00",
    "a\x7f",
]
"""Clients read these paths differently."""


@pytest.mark.parametrize(
    "location",
    [
        *(f"{PLACE}/{name}" for name in ["", "/", "//", *BAD, "a\\b", "..\\a", "a.", "a./b", "a/b..", "x" * 1025]),
        PLACE,
        f"abfss://files@other.{HOST.partition('.')[2]}/a",
        f"abfss://files@{HOST}.evil.example/a",
        f"abfss://files@lake@{HOST}/a",
        f"abfss://$root@{HOST}/a",
        f"abfss://*@{HOST}/a",
        f"abfss://{HOST}/a",
        f"wasbs://files@{HOST}/a",
        f"https://{HOST}/files/a",
        "s3://files/a",
    ],
)
def test_a_location_that_no_key_of_azure_opens_alone(location: str) -> None:
    assert directory(location, RIGHTS, HOST) is None


def test_without_a_right_there_is_no_scope() -> None:
    for rights in ((), ("create_table",)):
        assert directory(f"{PLACE}/a", rights, HOST) is None
        assert rules("gs://lake/a", rights, "lake") is None


def boundary(location: str, *rights: str) -> dict[str, Any]:
    """Return the JSON of the boundary, as the token service gets it."""
    from metastore.serve.iceberg.gcs_tokens import _boundary

    found = rules(location, rights, "lake")
    assert found is not None
    made: dict[str, Any] = _boundary(found)
    return made


def test_a_boundary_as_google_documents_it() -> None:
    name = "resource.name.startsWith('projects/_/buckets/lake/objects/a/t/')"
    listed = "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('a/t/')"
    place = "//storage.googleapis.com/projects/_/buckets/lake"
    assert boundary("gs://lake/a/t/", *RIGHTS) == {
        "accessBoundary": {
            "accessBoundaryRules": [
                {
                    "availableResource": place,
                    "availablePermissions": ["inRole:roles/storage.objectViewer"],
                    "availabilityCondition": {"expression": f"{name} || {listed}"},
                },
                {
                    "availableResource": place,
                    "availablePermissions": ["inRole:roles/storage.legacyBucketWriter"],
                    "availabilityCondition": {"expression": name},
                },
            ]
        }
    }


@pytest.mark.parametrize("name", [*ODD, "a\\b", "a\\", "\\'", "\\\\'", "a\\') || true || ('", "a.", "a\\nb"])
def test_a_boundary_opens_one_folder(name: str) -> None:
    """Neither what is beside it, nor what its name would mean in CEL, nor more than the right allows."""
    place = f"wh/{name}"
    reader, writer = (boundary(f"gs://lake/{place}", right) for right in RIGHTS)
    both = boundary(f"gs://lake/{place}", *RIGHTS)
    own = [f"{place}/data/1.parquet", f"{place}/{name}"]
    beside = [place, f"{place}2/x", f"{place}.bak/x", "wh/", "wh/x", "x", f"x/{place}/x", f"{place.upper()}x/x"]
    for object in [*own, *beside]:
        for permission in ("get", "create", "delete", "list", "setIamPolicy"):
            mine = object in own
            assert allows(reader, permission, "lake", object) == (mine and permission in ("get", "list"))
            assert allows(writer, permission, "lake", object) == (mine and permission in ("create", "delete"))
            assert allows(both, permission, "lake", object) == (mine and permission != "setIamPolicy")
            assert not allows(both, permission, "lake2", object)
    assert allows(reader, "list", "lake", f"{place}/")
    assert not allows(both, "list", "lake", "")


@pytest.mark.parametrize(
    "location",
    [
        *(f"gs://lake/{name}" for name in ["", "/", "//", *BAD]),
        "gs://lake",
        "gs://lake2/a",
        "gs://Lake/a",
        "gs://*/a",
        "gs://user@lake/a",
        "gs://lake'/a",
        "s3://lake/a",
        "gcs://lake/a",
    ],
)
def test_a_location_that_no_boundary_names_alone(location: str) -> None:
    assert rules(location, RIGHTS, "lake") is None


def test_a_condition_is_not_longer_than_google_accepts() -> None:
    sizes = [
        max((len(rule.condition) for rule in rules(f"gs://lake/{chr(39) * n}", RIGHTS, "lake") or ()), default=0)
        for n in range(1, 700)
    ]
    assert 2040 < max(sizes) <= 2048
    assert sizes[-1] == 0
