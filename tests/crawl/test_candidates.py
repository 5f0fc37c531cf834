"""What tables would be called, from paths alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore.crawl.dataset.candidates import Candidate, candidates
from metastore.crawl.files.discover import walk
from metastore.crawl.files.hive import NULL, key_type, parse_key, partition_parts, typed
from tests.crawl.conftest import Lake

INTO = ("lake", "main")


def found(*roots: Path, into: tuple[str, ...] = INTO) -> list[Candidate]:
    done, failures = candidates(walk(roots), into)
    assert not failures
    return done


def tables(*roots: Path, into: tuple[str, ...] = INTO) -> dict[str, str]:
    return {".".join(c.table[len(into) :]): ".".join(c.schema[len(into) :]) for c in found(*roots, into=into)}


def test_names_are_relative_to_the_path(lake: Lake) -> None:
    for name in (
        "nyc/flights/month=1/a.parquet",
        "nyc/flights/month=2/a.parquet",
        "a/b/c/d.csv",
        "solo/x.csv",
        "r.csv",
    ):
        lake.text(name, "x")
    assert tables(lake.root) == {
        "nyc.flights": "nyc.flights",
        "a.b.c": "a.b.c",
        "lake.solo": "solo",
        "lake.lake": "lake",
    }
    assert tables(lake.root / "nyc") == {"nyc.flights": "flights"}
    assert tables(lake.root / "nyc" / "flights") == {"flights.flights": "flights"}


def test_into_a_schema(lake: Lake) -> None:
    lake.text("solo/x.csv", "x")
    lake.text("r.csv", "x")
    assert tables(lake.root, into=("lake", "main", "raw")) == {"solo": "solo", "lake": ""}


def test_a_folder_below_a_partition_is_a_data_set_of_its_own(lake: Lake) -> None:
    lake.text("region=eu/orders/day=1/a.csv", "x")
    (candidate,) = found(lake.root)
    assert candidate.table == (*INTO, "region=eu", "orders")
    assert [file.name for file in candidate.files] == ["day=1/a.csv"]
    assert candidate.partitioned


def test_files_beside_partitions_are_apart(lake: Lake) -> None:
    lake.text("a/t/day=1/x.csv", "x")
    lake.text("a/t/notes.csv", "x")
    plain, keyed = found(lake.root)
    assert (plain.apart, plain.partitioned, keyed.apart, keyed.partitioned) == (True, False, False, True)


def test_two_folders_that_claim_one_table(lake: Lake) -> None:
    lake.text("x/a/t/1.csv", "x")
    lake.text("y/a/t/1.csv", "x")
    first, second = found(lake.root / "x", lake.root / "y")
    assert first.rival is None
    assert second.rival == first.location
    assert found(lake.root / "y", lake.root / "x")[0].location == second.location


def test_folders_that_differ_only_in_unicode_form_claim_one_table(lake: Lake) -> None:
    lake.text("a/caf\u00e9/1.csv", "x")
    lake.text("a/cafe\u0301/1.csv", "x")
    first, second = found(lake.root)
    assert first.table == second.table
    assert [first.rival, second.rival].count(None) == 1


def test_neighbours_are_the_tables_of_folders(lake: Lake) -> None:
    lake.text("a/t.csv", "x")
    lake.text("a/t/1.csv", "x")
    assert {c.location: c.neighbours for c in found(lake.root)}[str(lake.root / "a")] == {"t"}


def test_names_that_are_not_allowed_are_failures(lake: Lake) -> None:
    lake.text("ok/t/a.csv", "x")
    lake.text("bad\n/t/a.csv", "x")
    lake.text("bad\x85/t/a.csv", "x")
    done, failures = candidates(walk([lake.root]), INTO)
    assert [c.table[-2:] for c in done] == [("ok", "t")]
    assert len(failures) == 2
    assert all(failure.reason.startswith("cannot be crawled: the name") for failure in failures)


def test_names_with_a_blank_at_an_end_are_allowed(lake: Lake) -> None:
    lake.text(" a /t /x.csv", "x")
    done, failures = candidates(walk([lake.root]), INTO)
    assert [c.table[-2:] for c in done] == [(" a ", "t ")]
    assert failures == []


def test_a_folder_that_was_not_listed_makes_its_data_set_incomplete(lake: Lake) -> None:
    lake.text("a/t/day=1/x.csv", "x")
    lake.text("a/u/x.csv", "x")
    listing = walk([lake.root])
    listing.failures.append(type("F", (), {"path": str(lake.root / "a/t/day=2"), "reason": ""})())
    assert {c.table[-1]: c.incomplete for c in candidates(listing, INTO)[0]} == {"t": True, "u": False}


def test_keys() -> None:
    assert parse_key("a=1") == ("a", "1")
    assert parse_key("a%20b=x%2Fy=z") == ("a b", "x/y=z")
    assert parse_key("a=") == ("a", NULL)
    assert parse_key("u\u0308=1") == ("\u00fc", "1")  # as a column's name
    assert parse_key("=a") is None
    assert parse_key("a") is None
    assert partition_parts(("a", "k=1", "b", "k=1", "l=2")) == (("a", "k=1", "b"), ("k=1", "l=2"))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "02", "-3", NULL], "int"),
        (["1", "3000000000"], "long"),
        (["1", "30000000000000000000"], "decimal(38,0)"),
        (["1", "1.5"], "double"),
        (["2024-01-01", "2024-12-31"], "date"),
        (["2024-01-01", "2024-01-01 10:00:00"], "timestamptz"),
        (["2024-13-01"], "string"),
        (["1", "2024-01-01"], "string"),
        (["1", "x"], "string"),
        (["1_000"], "string"),
        (["٣"], "string"),
        ([NULL], "string"),
        ([], "string"),
    ],
)
def test_types_of_partition_columns(values: list[str], kind: str) -> None:
    assert key_type(values) == kind


def test_values_that_do_not_fit_are_none() -> None:
    assert typed("x", "int") is None
    assert typed(NULL, "string") is None
    assert typed("7", "long") == 7
