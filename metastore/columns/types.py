"""The type language: how a column's type is written, read and spelled.

    boolean byte short int long float double decimal(p,s) date time(p) timestamp(p) timestamptz(p)
    interval_year interval_day string varchar(n) char(n) fixed(n) binary uuid
    list<t>   map<k,v>   struct<a: t not null, b: t comment 'text', …>   external("any text")

Keywords ignore case, white space is free. ``1 <= p <= 38`` and ``0 <= s <= p`` for decimal; ``0 <= p <= 9`` for the
times, 6 when it is left out; ``1 <= n <= 2**31 - 1``. A struct's field name with other characters than letters, digits
and underscores is in back-quotes. A back-quote in it is doubled; so are ``"`` in an external text and ``'`` in a
comment. List elements and map values may be ``not null`` too; a map's key always is. Types nest at most ``MAX_DEPTH``
deep.

``str(parse(text))`` is the canonical spelling, which parses to the same type. Keywords are in lower case, with one
blank after ``,`` and ``:`` (none inside parentheses). A precision stays as it was written. Comments are left out,
because they belong to the column, not to its type.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NoReturn, Protocol

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.names import clean_name, clean_text, exact_text

__all__ = ["MAX_DEPTH", "Atomic", "External", "Field", "Nested", "Type", "depth", "parse", "spell"]

MAX_DEPTH: Final = 100
_DEFAULT_PRECISION: Final = 6
_LENGTH: Final = range(1, 2**31)
_PRECISION: Final = range(10)
_PARAMETERS: Final[dict[str, tuple[range, ...]]] = {
    **dict.fromkeys(("boolean", "byte", "short", "int", "long", "float", "double"), ()),
    "decimal": (range(1, 39), range(39)),
    "date": (),
    **dict.fromkeys(("time", "timestamp", "timestamptz"), (_PRECISION,)),
    **dict.fromkeys(("interval_year", "interval_day", "string"), ()),
    **dict.fromkeys(("varchar", "char", "fixed"), (_LENGTH,)),
    **dict.fromkeys(("binary", "uuid"), ()),
}
_KEYWORDS: Final = ", ".join([*_PARAMETERS, "list", "map", "struct", "external"])
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<word>\w+)|(?P<quoted>`(?:[^`]|``)*`)|(?P<string>"(?:[^"]|"")*")
    |(?P<comment>'(?:[^']|'')*')|(?P<sign>[<>(),:])|(?P<end>\Z))""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Atomic:
    """A type without parts: its keyword and its numbers.

    ``bare``: written without numbers, which then have their default.
    """

    name: str
    arguments: tuple[int, ...] = ()
    bare: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.bare or not self.arguments:
            return self.name
        return f"{self.name}({','.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class External:
    """A type of another system, kept as its own text."""

    name: ClassVar[str] = "external"
    text: str

    def __str__(self) -> str:
        return f'external("{self.text.replace(chr(34), chr(34) * 2)}")'


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a nested type."""

    name: str
    type: Type
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Nested:
    """A list (one field ``element``), a map (``key``, ``value``) or a struct (any fields)."""

    name: str
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return spell(self.name, self.fields)


Type = Atomic | External | Nested


class _Part(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> object: ...
    @property
    def nullable(self) -> bool: ...


def spell(name: str, fields: Sequence[_Part]) -> str:
    """Write the nested type ``name`` of ``fields`` canonically; a field's ``type`` is a Type or its text."""
    parts = [f"{f.type}" if f.nullable or (name == "map" and f.name == "key") else f"{f.type} not null" for f in fields]
    if name == "struct":
        parts = [f"{_quoted(f.name)}: {part}" for f, part in zip(fields, parts, strict=True)]
    return f"{name}<{(',' if name == 'map' else ', ').join(parts)}>"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def depth(kind: Type) -> int:
    """Return how many types are inside each other: 1 for ``int``, 2 for ``list<int>``."""
    return 1 + max((depth(f.type) for f in kind.fields), default=0) if isinstance(kind, Nested) else 1


def parse(text: object) -> Type:
    """Read ``text`` as a type, or raise InvalidArgument with the place and what was expected there."""
    if not isinstance(text, str):
        raise InvalidArgument(f"a type is a string such as 'decimal(10,2)', not {type(text).__name__}")
    return _parse(exact_text(text, "a type"))


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> Type:
    parser = _Parser(clean_text(text, "a type"))
    result = parser.type(1)
    if parser.kind != "end":
        parser.fail("the end of the type")
    return result


class _Parser:
    """Reads one text from left to right; ``kind`` and ``value`` describe the next token."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.next = text, 0, 0
        self.kind = self.value = ""
        self.advance()

    def advance(self) -> str:
        """Move to the next token; return the value of the previous one."""
        value, match = self.value, _TOKEN.match(self.text, self.next)
        if match is None:
            self.at = len(self.text) - len(self.text[self.next :].lstrip())
            self.kind, self.value = "bad", self.text[self.at]
        else:
            self.kind = match.lastgroup or ""
            self.value, self.at, self.next = match[self.kind], match.start(self.kind), match.end()
        return value

    def fail(self, expected: str) -> NoReturn:
        token = shown(self.value) if self.value else "the end"
        raise InvalidArgument(
            f"the type {shown(self.text)} does not parse: at character {self.at + 1} expected {expected}, found {token}"
        )

    def sign(self, sign: str) -> None:
        if self.value != sign:
            self.fail(repr(sign))
        self.advance()

    def keyword(self, word: str) -> bool:
        matches = self.kind == "word" and self.value.lower() == word
        if matches:
            self.advance()
        return matches

    def string(self, kind: str, expected: str) -> str:
        """Read a quoted token; return it without its quotes, with each doubled quote as a single one."""
        if self.kind != kind:
            self.fail(expected)
        token = self.advance()
        return token[1:-1].replace(token[0] * 2, token[0])

    def type(self, level: int) -> Type:
        if level > MAX_DEPTH:
            self.fail(f"at most {MAX_DEPTH} types inside each other")
        name = self.value.lower()
        if self.kind != "word" or not (name in _PARAMETERS or name in ("list", "map", "struct", "external")):
            self.fail(f"a type ({_KEYWORDS})")
        self.advance()
        if name in _PARAMETERS:
            bare = self.value != "("
            return Atomic(name, self.arguments(name), bare)
        if name == "external":
            return self.external()
        self.sign("<")
        fields = self.struct(level) if name == "struct" else self.parts(name, level)
        self.sign(">")
        return Nested(name, fields)

    def arguments(self, name: str) -> tuple[int, ...]:
        ranges = _PARAMETERS[name]
        if not ranges or (ranges[0] is _PRECISION and self.value != "("):
            return (_DEFAULT_PRECISION,) if ranges else ()
        self.sign("(")
        numbers = [self.number(ranges[0])]
        if len(ranges) > 1:
            self.sign(",")
            numbers.append(self.number(range(numbers[0] + 1)))
        self.sign(")")
        return tuple(numbers)

    def number(self, allowed: range) -> int:
        digits = self.value
        fits = digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) in allowed
        if not fits:
            self.fail(f"a number from {allowed.start} to {allowed.stop - 1}")
        self.advance()
        return int(digits)

    def external(self) -> External:
        self.sign("(")
        text = self.string("string", 'a text in double quotes, as in external("geometry")')
        if not text:
            raise InvalidArgument('the text of external("…") must not be empty')
        self.sign(")")
        return External(text)

    def parts(self, name: str, level: int) -> tuple[Field, ...]:
        if name == "list":
            return (self.field("element", level),)
        key = self.field("key", level)
        self.sign(",")
        return Field("key", key.type, False, key.comment), self.field("value", level)

    def struct(self, level: int) -> tuple[Field, ...]:
        fields: dict[str, Field] = {}
        while self.value != ">" or fields:
            name = clean_name(self.advance() if self.kind == "word" else self.string("quoted", "a field's name"))
            if name in fields:
                raise InvalidArgument(f"the type {self.text!r} has two fields named {name!r} in one struct")
            self.sign(":")
            fields[name] = self.field(name, level)
            if self.value != ",":
                break
            self.advance()
        return tuple(fields.values())

    def field(self, name: str, level: int) -> Field:
        kind, nullable, comment = self.type(level + 1), True, None
        if self.keyword("not"):
            if not self.keyword("null"):
                self.fail("'null' after 'not'")
            nullable = False
        if self.keyword("comment"):
            comment = self.string("comment", "a text in single quotes after 'comment'")
        return Field(name, kind, nullable, comment)
