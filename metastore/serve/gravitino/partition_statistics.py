"""The statistics of a table's partitions: listed by a range of names, set and dropped for several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from metastore.serve.gravitino import reading
from metastore.serve.gravitino.objects import STATISTICS, check_custom, measured_table, statistic
from metastore.serve.web import Answer, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["ENDPOINTS"]


class _Update(BaseModel):
    model_config = ConfigDict(strict=True)
    partitionName: str = Field(min_length=1)  # noqa: N815  (the API's own name)
    statistics: dict[str, Any] = Field(min_length=1)


class _Updates(BaseModel):
    model_config = ConfigDict(strict=True)
    updates: list[_Update] = Field(min_length=1)


class _Drop(BaseModel):
    model_config = ConfigDict(strict=True)
    partitionName: str = Field(min_length=1)  # noqa: N815  (the API's own name)
    statisticNames: list[str] = Field(min_length=1)  # noqa: N815  (the API's own name)


class _Drops(BaseModel):
    model_config = ConfigDict(strict=True)
    drops: list[_Drop] = Field(min_length=1)


_UPDATES: Final = TypeAdapter(_Updates)
_DROPS: Final = TypeAdapter(_Drops)


def _within(call: Call, name: str) -> bool:
    """Tell whether a partition is in the range of the query, which by default includes only its lower bound."""
    below, above = call.query.get("from"), call.query.get("to")
    starts = below is None or name > below or (name == below and reading.flag(call, "fromInclusive", default="true"))
    return starts and (above is None or name < above or (name == above and reading.flag(call, "toInclusive")))


def _list(store: Store, call: Call) -> Answer:
    table = measured_table(call)
    partitions = {one.name: one for one in store.partitions.list(table) if _within(call, one.name)}
    values = store.statistics.of_partitions(table, partitions)
    found = [
        {"partitionName": name, "statistics": [statistic(key, of[key], partitions[name]) for key in sorted(of)]}
        for name, of in values.items()
        if of
    ]
    return Answer({"code": 0, "partitionStatistics": found})


def _set(store: Store, call: Call) -> Answer:
    table, wanted = measured_table(call), reading.body(call, _UPDATES).updates
    for one in wanted:
        check_custom(one.statistics)

    def apply(tx: Any) -> None:
        for one in wanted:
            tx.statistics.set(table, one.statistics, partition=one.partitionName)

    store.run(apply)
    return Answer({"code": 0})


def _drop(store: Store, call: Call) -> Answer:
    table, wanted = measured_table(call), reading.body(call, _DROPS).drops

    def apply(tx: Any) -> int:
        return sum(tx.statistics.remove(table, one.statisticNames, partition=one.partitionName) for one in wanted)

    return Answer({"code": 0, "dropped": store.run(apply) > 0})


_PARTITIONS: Final = f"{STATISTICS}/partitions"
ENDPOINTS: Final = (
    ("GET", _PARTITIONS, "table", _list),
    ("PUT", _PARTITIONS, "partition", _set),
    ("POST", _PARTITIONS, "partition", _drop),
)
