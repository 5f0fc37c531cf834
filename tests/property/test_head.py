"""To change only the head of a document gives what reading all of it gives, errors too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metastore as ms
from metastore.errors import MetastoreError
from metastore.kinds import head, kind
from metastore.kinds.change import EntityChange
from metastore.operation.merge import altered

NAMES = ("m", "c", "t")
keys = st.sampled_from(["a", "b", "comment", "properties", "é", "", "\ud800"])
texts = st.one_of(st.text(max_size=5), st.sampled_from(["", '","properties":{', "}", "\\", "\x00", "env:A"]))
values = st.one_of(texts, st.none(), st.integers())
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=6,
)
properties = st.dictionaries(st.sampled_from(["a", "b", "comment", "é"]), st.text(max_size=5), max_size=4)
documents = st.builds(
    lambda comment, own, rest: {"comment": comment, "properties": own, **rest},
    st.none() | st.text(max_size=5),
    properties,
    st.dictionaries(st.sampled_from(["columns", "location", "x"]), anything, max_size=3),
)
changes = st.one_of(
    st.builds(ms.SetComment, values),
    st.builds(ms.RemoveProperty, keys),
    st.builds(ms.SetProperty, keys, values),
    st.builds(lambda key, value, old: ms.SetProperty(key, value, expected=old), keys, texts, texts | st.none()),
)


def outcome(text: str, several: Sequence[EntityChange]) -> object:
    try:
        return altered(text, NAMES, several)
    except (MetastoreError, AttributeError, TypeError) as error:
        return type(error), str(error)


@given(doc=documents, several=st.lists(changes, min_size=1, max_size=4))
def test_the_head_alone_is_as_good_as_the_whole(doc: dict[str, Any], several: list[EntityChange]) -> None:
    text = kind.dump(doc, NAMES)
    assert head.split(text) is not None
    quick = outcome(text, several)
    head._written.clear()
    assert quick == outcome(text, several)


def test_a_text_of_another_spelling_is_read_whole() -> None:
    """It may have a key twice, of which the last counts."""
    text = '{"comment":"a","properties":{},"x":1,"comment":"b"}'
    assert head.split(text) is None
    assert json.loads(altered(text, NAMES, [ms.SetProperty("k", "v")]) or "")["comment"] == "b"
    swapped = kind.dump({"properties": {}, "comment": "a"}, NAMES)
    assert head.split(swapped) is None, "known, but its head stands elsewhere"


def test_the_bound_counts_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kind.dump({"comment": None, "properties": {}, "x": "y" * 100}, NAMES)
    monkeypatch.setattr(kind, "MAX_DOC", len(text) + 5)
    with pytest.raises(ms.InvalidArgument, match=f"has {len(text) + 7} bytes"):
        altered(text, NAMES, [ms.SetProperty("k", "v")])


def test_few_texts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "_MOST", 3)
    for n in range(10):
        kind.dump({"comment": str(n), "properties": {}}, NAMES)
    assert len(head._written) <= 3
