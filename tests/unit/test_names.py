"""Names and paths as text: what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metastore.names import format_path, parse_path
from tests.strategies import names

BLANKS = st.sampled_from((" ", "  ", "\u00a0", "\u3000", "\u2028"))
BLANK_ENDS = st.builds("{}{}{}".format, st.just("") | BLANKS, names, st.just("") | BLANKS)


@given(st.lists(names | BLANKS | BLANK_ENDS, min_size=1, max_size=5).map(tuple))
@example((" ", " a", "a ", ".", "`", " `.` "))
def test_a_path_is_read_back_as_it_was_written(path: tuple[str, ...]) -> None:
    path = parse_path(path)
    assert parse_path(format_path(path)) == path


@given(names)
def test_a_blank_at_an_end_is_seen(name: str) -> None:
    assert format_path([f" {name}"])[0] == format_path([f"{name} "])[-1] == "`"


@pytest.mark.parametrize(("text", "path"), [("a. b", ("a", " b")), ("a.` b`", ("a", " b")), (" ", (" ",))])
def test_a_blank_belongs_to_the_name_with_quotes_or_without(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path
