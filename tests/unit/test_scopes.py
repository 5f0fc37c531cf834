"""Scope versions that were read at different times: they agree, or nothing is made of them; or the older counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore.port.scopes import Scopes

read = st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=4)


@given(st.lists(read, max_size=4))
def test_all_agree_or_there_is_nothing(many: list[dict[int, int]]) -> None:
    found = Scopes.agreed([Scopes(one.items()) for one in many])
    seen = {(i, scope) for one in many for i, scope in one.items()}
    if len({i for i, _ in seen}) < len(seen):
        assert found is None
    else:
        assert found is not None
        assert set(found.pairs) == seen


@given(st.lists(read, max_size=4))
def test_the_older_counts(many: list[dict[int, int]]) -> None:
    found = dict(Scopes.older([Scopes(one.items()) for one in many]).pairs)
    assert found == {i: min(one[i] for one in many if i in one) for i in {i for one in many for i in one}}


@given(read, read)
def test_in_another_and_without_some(one: dict[int, int], other: dict[int, int]) -> None:
    first, second = Scopes(one.items()), Scopes(other.items())
    assert first.all_in(second) == (one.items() <= other.items())
    assert first.agrees(second) == all(other.get(i, scope) == scope for i, scope in one.items())
    assert dict(first.without(other).pairs) == {i: scope for i, scope in one.items() if i not in other}
    assert list(first.sorted().pairs) == sorted(one.items())


def test_a_mapping_cannot_take_them_in() -> None:
    scopes: Any = Scopes([(1, 2)])
    with pytest.raises(TypeError):
        {} | scopes
    with pytest.raises(TypeError):
        dict(scopes)
    with pytest.raises(TypeError):
        {**scopes}  # noqa: B018
