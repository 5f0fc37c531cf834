"""The layout of a table: partitioning, distribution, sort orders, and indexes.

All except indexes are texts, which are parsed, checked, and stored in one canonical spelling:

    partitioning   region   bucket(16, id)   truncate(4, name)   year(ts) month(ts) day(ts) hour(ts)
                   list(region)   range(ts)   any_function(a, 3, 'text')
    distribution   hash(16, id)   range(ts)   even
    sort order     a partitioning's expression, then [asc | desc] [nulls first | nulls last]

``list``, ``range``, ``bucket`` and ``hash`` take one or more columns. A sort order is ascending unless it says
``desc``; nulls come first when it ascends and last when it descends, unless it says otherwise; the canonical
spelling says both. Known functions and the words of a sort order are spelled in lower case.

A column is named by its name, or by the dotted path of a nested field. A name that is a number, or contains white
space, a dot, a comma, a parenthesis or a quote, is written in back-quotes; back-quotes inside are doubled.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NoReturn

from metastore.arguments import shown
from metastore.columns.column import Node, find
from metastore.errors import InvalidArgument
from metastore.names import clean_name, clean_text, format_path, parse_path

__all__ = [
    "EVEN",
    "Index",
    "check_distribution",
    "check_indexes",
    "check_partitioning",
    "check_sort_orders",
    "decode_indexes",
    "parts_of",
    "references",
    "renamed",
    "spelled",
]

Names = tuple[str, ...]
EVEN: Final = "even"
"""The distribution that refers to no column. In the other texts it is a column's name."""
_ONE: Final = {"year", "month", "day", "hour", "truncate"}
_NUMBERED: Final = {"bucket": "bucket(16, id)", "truncate": "truncate(4, name)", "hash": "hash(16, id)"}
_PARTITIONING: Final = frozenset({"bucket", "truncate", "year", "month", "day", "hour", "list", "range"})
_DISTRIBUTION: Final = frozenset({"hash", "range"})
_INDEX_TYPES: Final = ("primary", "unique")
_ORDER: Final = re.compile(r"(asc|desc)?(?:(?:^| )nulls (first|last))?")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_PLAIN: Final = re.compile(r"[^\s,()`'\".]+")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?![^\s,()])|(?P<text>'(?:[^']|'')*')|(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[^\s,()`'".]+)|(?P<sign>[(),.])|(?P<end>\Z))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Index:
    """An index of a table: its name, its columns (names or paths), and its type (``primary`` or ``unique``)."""

    name: str
    columns: tuple[str, ...]
    type: Literal["primary", "unique"] = field(default="primary", kw_only=True)

    def __post_init__(self) -> None:
        vars(self).update(name=clean_name(self.name), columns=_index_columns(self.columns))
        if not isinstance(self.type, str) or self.type not in _INDEX_TYPES:
            raise InvalidArgument(f"an index is of the type 'primary' or 'unique', not {shown(self.type)}")


def _index_columns(columns: object) -> tuple[str, ...]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidArgument(f"the columns of an index are a sequence of names, not {shown(columns)}")
    paths = tuple(format_path(parse_path(c)) for c in columns)
    if not paths or len(set(paths)) < len(paths):
        raise InvalidArgument(f"an index needs one or more columns, each once; found {list(paths)}")
    return paths


@dataclass(frozen=True)
class _Expression:
    """A parsed text.

    An argument is a column (a tuple of names) or the text of a literal. Without a function there is one argument, a
    column.
    """

    function: str | None
    arguments: tuple[str | Names, ...]
    rest: str = ""

    def __str__(self) -> str:
        arguments = ", ".join(a if isinstance(a, str) else ".".join(map(_quoted, a)) for a in self.arguments)
        text = arguments if self.function is None else f"{self.function}({arguments})"
        return f"{text} {self.rest}" if self.rest else text

    @property
    def references(self) -> tuple[Names, ...]:
        return tuple(a for a in self.arguments if isinstance(a, tuple))


def _quoted(name: str) -> str:
    plain = _PLAIN.fullmatch(name) and not _NUMBER.fullmatch(name)
    return name if plain else "`" + name.replace("`", "``") + "`"


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.next = text, 0, 0
        self.kind = self.value = ""
        self.advance()

    def advance(self) -> str:
        """Go to the next token, and return the value of the previous one."""
        value, match = self.value, _TOKEN.match(self.text, self.next)
        if match is None:
            self.at, self.value = self.next, self.text[self.next :].lstrip()[0]
            self.fail("a quote that is closed")
        self.kind = match.lastgroup or ""
        self.value, self.at, self.next = match[self.kind], match.start(self.kind), match.end()
        return value

    def fail(self, expected: str) -> NoReturn:
        token = repr(self.value) if self.value else "the end"
        raise InvalidArgument(
            f"{shown(self.text)} does not parse: at character {self.at + 1} expected {expected}, found {token}"
        )

    def expression(self) -> _Expression:
        if self.kind == "end":
            self.fail("a column or a function")
        first = self.argument()
        if self.value != "(":
            if isinstance(first, str):
                self.fail("a column's name (back-quoted if it is a number), not a literal")
            return _Expression(None, (first,), self.rest())
        if isinstance(first, str) or len(first) > 1 or not re.fullmatch(r"\w+", first[0]):
            self.fail("a function's name (letters, digits, underscores)")
        return _Expression(first[0], self.arguments(), self.rest())

    def arguments(self) -> tuple[str | Names, ...]:
        arguments: list[str | Names] = []
        while not arguments or self.value == ",":
            self.advance()
            arguments.append(self.argument())
        if self.value != ")":
            self.fail("',' or ')'")
        self.advance()
        return tuple(arguments)

    def argument(self) -> str | Names:
        if self.kind in ("number", "text"):
            return self.advance()
        names = [self.name()]
        while self.value == ".":
            self.advance()
            names.append(self.name())
        return tuple(names)

    def name(self) -> str:
        if self.kind not in ("word", "quoted"):
            self.fail("a column's name")
        quoted, token = self.kind == "quoted", self.advance()
        return clean_name(token[1:-1].replace("``", "`") if quoted else token)

    def rest(self) -> str:
        words = []
        while self.kind == "word":
            words.append(self.advance().lower())
        if self.kind != "end":
            self.fail("the end of the text")
        return " ".join(words)


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> _Expression:
    return _Parser(text).expression()


def references(text: str) -> tuple[Names, ...]:
    """Return the paths of the columns that a partitioning, sort order, or distribution other than EVEN refers to."""
    return _parse(text).references


def parts_of(text: str) -> tuple[str | None, tuple[str | Names, ...], str]:
    """Return a text's function (None: it is one column), its arguments (columns as tuples of names), and the rest."""
    expression = _parse(text)
    return expression.function, expression.arguments, expression.rest


def spelled(function: str | None, arguments: Iterable[str | Names], rest: str = "") -> str:
    """Return the text with these parts: the inverse of :func:`parts_of`. The parts are not checked here."""
    return str(_Expression(function, tuple(arguments), rest))


def renamed(text: str, old: Names, new: Names) -> str:
    """Return ``text`` with each reference to the column ``old``, or to a field below it, changed to ``new``."""
    if not any(names[: len(old)] == old for names in references(text)):
        return text
    expression = _parse(text)
    arguments = (
        new + a[len(old) :] if isinstance(a, tuple) and a[: len(old)] == old else a for a in expression.arguments
    )
    return str(replace(expression, arguments=tuple(arguments)))


def check_partitioning(texts: Iterable[str], nodes: list[Node]) -> list[str]:
    """Return the canonical spelling of each text; the columns that it names must be in ``nodes``."""
    return _each_once("partitioning", texts, lambda text: _transform("partitioning", text, nodes))


def check_sort_orders(texts: Iterable[str], nodes: list[Node]) -> list[str]:
    """Return the canonical spelling of each text; the columns that it names must be in ``nodes``."""
    return _each_once("sort orders", texts, lambda text: _sort_order(text, nodes))


def check_distribution(text: str | None, nodes: list[Node]) -> str | None:
    """Return the canonical spelling of ``text``; the columns that it names must be in ``nodes``."""
    if text is None:
        return None
    text = clean_text(text, "a distribution")
    if text.strip().lower() == EVEN:
        return EVEN
    expression = _parse(text)
    if (expression.function or "").lower() not in _DISTRIBUTION or expression.rest:
        raise InvalidArgument(f"the distribution {text!r} is none of 'hash(16, id)', 'range(ts)', 'even'")
    return str(_checked(text, expression, _DISTRIBUTION, nodes))


def check_indexes(indexes: Iterable[Index], nodes: list[Node]) -> list[dict[str, Any]]:
    """Return ``indexes`` as the document stores them.

    Raises InvalidArgument unless each is an Index, names differ, at most one is primary, and all columns exist.
    """
    if type(indexes) is not tuple and (isinstance(indexes, (str, Index)) or not isinstance(indexes, Iterable)):
        raise InvalidArgument(f"indexes must be a sequence of Index, not {shown(indexes)}")
    stored: list[dict[str, Any]] = []
    for index in indexes:
        if not isinstance(index, Index):
            raise InvalidArgument(f"an index must be an Index, not {shown(index)}")
        if any(other["name"] == index.name for other in stored):
            raise InvalidArgument(f"two indexes are named {index.name!r}; names must differ")
        if index.type == "primary" and any(other["type"] == "primary" for other in stored):
            raise InvalidArgument(f"the index {index.name!r} would be the second primary one; a table has one at most")
        for path in index.columns:
            _must_exist(parse_path(path), f"the index {index.name!r}", nodes)
        stored.append({"name": index.name, "columns": list(index.columns), "type": index.type})
    return stored


def decode_indexes(stored: Iterable[Mapping[str, Any]]) -> tuple[Index, ...]:
    """Return the indexes that a document stores."""
    return tuple([Index(i["name"], tuple(i["columns"]), type=i["type"]) for i in stored])


def _each_once(what: str, texts: Iterable[str], check: Callable[[str], str]) -> list[str]:
    if type(texts) is not tuple and (isinstance(texts, str) or not isinstance(texts, Iterable)):
        raise InvalidArgument(f"{what} must be a sequence of strings, not {shown(texts)}")
    spelled: list[str] = []
    for text in texts:
        canonical = check(clean_text(text, f"an element of {what}"))
        if canonical in spelled:
            raise InvalidArgument(f"{what} has {canonical!r} twice")
        spelled.append(canonical)
    return spelled


def _transform(what: str, text: str, nodes: list[Node]) -> str:
    expression = _parse(text)
    if expression.rest:
        raise InvalidArgument(
            f"the {what} {text!r} ends in {expression.rest!r}; only a column or a function is allowed"
        )
    return str(_checked(text, expression, _PARTITIONING, nodes))


def _sort_order(text: str, nodes: list[Node]) -> str:
    expression = _parse(text)
    order = _ORDER.fullmatch(expression.rest)
    if order is None:
        raise InvalidArgument(
            f"the sort order {text!r} ends in {expression.rest!r}; after the column or function, only [asc | desc] "
            "[nulls first | nulls last] is allowed"
        )
    direction = order[1] or "asc"
    nulls = order[2] or ("first" if direction == "asc" else "last")
    return str(replace(_checked(text, expression, _PARTITIONING, nodes), rest=f"{direction} nulls {nulls}"))


def _checked(text: str, expression: _Expression, known: frozenset[str], nodes: list[Node]) -> _Expression:
    """Return ``expression`` with a known function in lower case.

    Raises InvalidArgument if an argument does not fit, a column does not exist, or the text refers to no column.
    """
    name = (expression.function or "").lower()
    if name in known:
        _check_arguments(text, name, expression.arguments)
        expression = replace(expression, function=name)
    if not expression.references:
        raise InvalidArgument(f"{text!r} refers to no column; it needs at least one")
    for names in expression.references:
        _must_exist(names, repr(text), nodes)
    return expression


def _check_arguments(text: str, name: str, arguments: Sequence[str | Names]) -> None:
    columns = arguments
    if name in _NUMBERED:
        number, *columns = arguments
        if not isinstance(number, str) or not re.fullmatch(r"0*[1-9]\d{0,8}", number, re.ASCII):
            raise InvalidArgument(
                f"{text!r}: the first argument of {name} must be an integer of at least 1, as in {_NUMBERED[name]!r}"
            )
    if any(isinstance(column, str) for column in columns) or not columns or (name in _ONE and len(columns) > 1):
        many = "one column" if name in _ONE else "one or more columns"
        raise InvalidArgument(f"{text!r}: {name} takes {many}{' after its number' * (name in _NUMBERED)}")


def _must_exist(names: Names, where: str, nodes: list[Node]) -> None:
    if find(nodes, names) is None:
        among = ", ".join(node["name"] for node in nodes[:20]) or "none"
        raise InvalidArgument(f"{where} refers to {format_path(names)}, which is not a column; there are: {among}")
