"""``parsed`` reads what ``json.loads`` reads, and refuses what that refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore.plain import parsed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)


@given(VALUES, st.sampled_from(["", " ", "\n"]), st.sampled_from(["", " ", "x", "1", "]"]))
def test_it_says_what_the_library_says(value: object, before: str, after: str) -> None:
    text = f"{before}{json.dumps(value)}{after}"
    assert outcome(parsed, text) == outcome(json.loads, text)


def outcome(read: Callable[[str], Any], text: str) -> Any:
    """Return what is read, or the message of the error."""
    try:
        return read(text)
    except json.JSONDecodeError as error:
        return str(error)


@pytest.mark.parametrize("text", ["", "[", "nul", '{"a": }'])
def test_texts_that_are_no_json(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        parsed(text)


def test_bytes() -> None:
    """SQLite gives text that is not UTF-8 as bytes."""
    given: Any = b"[1]"
    assert parsed(given) == [1]
