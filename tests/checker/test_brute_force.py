"""The sweep against linearizability by its definition: some order of all operations explains them in real time.

One name, which is created, altered and dropped again and again; every history of up to six operations, possible or
not, whose writes are in the feed in the order in which they took effect.
"""

from __future__ import annotations

from itertools import permutations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from metastore.checker.operation import ClientOperation
from metastore.checker.records import Seen
from tests.checker.histories import created, dropped, found, operation, saw, wrote

State = tuple[int, int] | None
"""What the name means: entity and version."""


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[ClientOperation], list[State]]:
    """Return the operations, and what the name means after each write (and before all)."""
    states: list[State] = [None]
    operations: list[ClientOperation] = []
    for number in range(draw(st.integers(0, 4))):
        state, who, seq = states[-1], f"w{number}/1", number + 1
        start, end = draw(intervals())
        if state is None:
            states.append((10 + number, 1))
            operation_ = operation(who, start, end, action="create", events=[created(seq, 10 + number, "a", who)])
        elif draw(st.booleans()):
            states.append((state[0], state[1] + 1))
            operation_ = operation(who, start, end, events=[wrote(seq, state[0], state[1] + 1, who)])
        else:
            states.append(None)
            operation_ = operation(who, start, end, action="drop", events=[dropped(seq, state[0], "a", who)])
        operations.append(operation_)
    for number in range(draw(st.integers(0, 6 - len(operations)))):
        start, end = draw(intervals())
        state = draw(st.sampled_from(states))
        seen: Seen = saw("a") if state is None else saw("a", *state)
        operations.append(operation(f"r{number}/1", start, end, action="load", reads=[seen]))
    return operations, states


def intervals() -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def is_linearizable(operations: list[ClientOperation], states: list[State]) -> bool:
    """Try every order. Times are whole numbers: one operation is before another if it ends before that begins."""
    return any(_explains(order, states) for order in permutations(operations))


def _explains(order: tuple[ClientOperation, ...], states: list[State]) -> bool:
    at = 0
    for n, told in enumerate(order):
        assert told.end is not None
        if any(later.end is not None and later.end < told.start for later in order[n + 1 :]):
            return False
        if told.events:
            if told.events[0].seq != at + 1:
                return False
            at += 1
        else:
            (seen,) = told.reads
            state = states[at]
            if seen.there != (state is not None) or (state is not None and state != (seen.entity_id, seen.version)):
                return False
    return True


@given(histories())
@settings(max_examples=400, deadline=None)
def test_the_sweep_finds_something_if_and_only_if_no_order_explains_it(
    given: tuple[list[ClientOperation], list[State]],
) -> None:
    operations, states = given
    explained = is_linearizable(operations, states)
    event(f"linearizable: {explained}")
    assert ([str(finding) for finding in found(operations)] == []) is explained
