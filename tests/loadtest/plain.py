"""The analysis of a run in plain Python: what Spark's is compared with, and what reports are made of without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from metastore.checker.records import OUTCOMES, Operation
from metastore.loadtest.report.model import Action, Bucket, ClientShare, HotEntity, Moment, Run, Times


def plain_run(
    folder: str, made: Sequence[Operation], facts: Mapping[str, Any] | None = None, length: float = 0.1
) -> Run:
    """Analyse ``made``; moments are ``length`` seconds long, and where entities were is what operations say."""
    began = min((one.at for one in made), default=0.0)
    seconds = max([until(one) - began for one in made if one.end is not None], default=0.0)
    shares = plain_shares(made)
    return Run(
        folder=folder,
        clients=len(shares),
        missing=() if made else ("no client left a record",),
        seconds=seconds,
        whole=plain_action("", made),
        actions=tuple([plain_action(name, made) for name in sorted({one.action for one in made})]),
        moments=plain_moments(made, began, seconds, length),
        commit_histogram=plain_buckets(
            [taken(one) for one in made if one.outcome == "applied" and one.end is not None]
        ),
        attempts_histogram=tuple(sorted(Counter(one.attempts for one in made if writes(one) and one.attempts).items())),
        shares=shares,
        hot=plain_hot(made),
        facts=facts or {},
    )


def taken(one: Operation) -> float:
    assert one.end is not None
    return (one.end - one.start) / 1e6


def until(one: Operation) -> float:
    return one.at + taken(one) / 1e3


def writes(one: Operation) -> bool:
    return one.outcome != "read" and one.action != "load"


def plain_action(name: str, made: Sequence[Operation]) -> Action:
    mine = [one for one in made if name in ("", one.action)]
    attempts = [one.attempts for one in mine if writes(one)]
    tried = sorted(filter(None, attempts))
    causes = Counter(lost.cause for one in mine for lost in one.conflicts)
    outcomes = Counter(one.outcome for one in mine)
    return Action(
        name=name,
        outcomes={outcome: outcomes[outcome] for outcome in OUTCOMES},  # type: ignore[index]
        writes=len(attempts),
        attempts=sum(attempts),
        attempts_mean=sum(tried) / len(tried) if tried else 0.0,
        attempts_p99=tried[ceil(0.99 * len(tried)) - 1] if tried else 0,
        attempts_max=max(attempts, default=0),
        conflicts=causes.total(),
        causes=dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
        helped=sum(one.helped is True and one.outcome == "applied" for one in mine),
        commit=plain_times([taken(one) for one in mine if one.outcome == "applied" and one.end is not None]),
        read=plain_times([taken(one) for one in mine if one.outcome == "read" and one.end is not None]),
    )


def plain_times(values: Sequence[float]) -> Times | None:
    if not values:
        return None
    ranked = sorted(values)
    p50, p90, p99 = [ranked[ceil(share * len(ranked)) - 1] for share in (0.5, 0.9, 0.99)]
    return Times(len(ranked), sum(ranked) / len(ranked), p50, p90, p99, ranked[-1])


def plain_moments(made: Sequence[Operation], began: float, seconds: float, length: float) -> tuple[Moment, ...]:
    if not made:
        return ()
    last = max(0, round(seconds / length) - 1)
    found = []
    for place in range(last + 1):
        mine = [one for one in made if one.end is not None and min(last, floor((until(one) - began) / length)) == place]
        start = round(place * length, 6)
        end = seconds if place == last else round((place + 1) * length, 6)
        attempts = sum(one.attempts for one in mine if writes(one))
        lost = sum(len(one.conflicts) for one in mine)
        found.append(Moment(start, end - start, len(mine), sum(map(writes, mine)), attempts, lost))
    return tuple(found)


def plain_buckets(values: Sequence[float]) -> tuple[Bucket, ...]:
    counts = Counter(floor(log10(max(value, 1e-3)) * 8) for value in values)
    places = range(min(counts), max(counts) + 1) if counts else ()
    return tuple([Bucket(10 ** (place / 8), 10 ** ((place + 1) / 8), counts[place]) for place in places])


def plain_shares(made: Sequence[Operation]) -> tuple[ClientShare, ...]:
    """Return the shares of clients whose names have no incarnation."""
    found = []
    for client in sorted({one.client for one in made}, key=lambda name: (len(name), name)):
        mine = [one for one in made if one.client == client]
        answered = sum(one.outcome in ("applied", "nothing", "read", "failed") for one in mine)
        applied = sum(one.outcome == "applied" for one in mine)
        found.append(ClientShare(client, answered, applied, sum(len(one.conflicts) for one in mine)))
    return tuple(found)


def plain_hot(made: Sequence[Operation]) -> tuple[HotEntity, ...]:
    """Return the hot entities of operations whose conflicts are all on the entity that they are about."""
    found = []
    for entity_id in {one.entity_id for one in made}:
        mine = [one for one in made if one.entity_id == entity_id]
        last = max(mine, key=lambda one: one.at)
        lost = sum(len(one.conflicts) for one in mine)
        if lost:
            found.append(HotEntity(entity_id, last.path_to or last.path, lost, len(mine)))
    return tuple(sorted(found, key=lambda hot: (-hot.conflicts, hot.entity_id or 0))[:10])
