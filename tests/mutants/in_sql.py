"""Changes of SQL in strings: a condition, a boundary, a row lock, an order, a column.

They are made in the text of the string as it is in the file. What is between braces in an f-string is Python, and is
not changed; a comment of SQL is not changed either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.mutants.change import Change

__all__ = ["changes_of_sql", "is_sql"]

_SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|ORDER BY|JOIN|LIMIT|EXISTS|AND [\w.]+ [=<>])\b|\bAND "
)
_ENDS = re.compile(
    r"\b(CASE|AND|OR|ORDER|GROUP|FOR|LIMIT|RETURNING|UNION|THEN|ELSE|END|WHERE|FROM|ON|WHEN|LEFT|JOIN|CROSS|SET|AS|HAVING"
    r"|DO|VALUES|OFFSET|SELECT|INSERT|DELETE)\b"
)
_REPLACED = (
    ("boundary", re.compile(r"(?<=[\w)}\]] )<(?= )"), "<="),
    ("boundary", re.compile(r"(?<=[\w)}\]] )>(?= )"), ">="),
    ("boundary", re.compile(r"(?<= )<=(?= )"), "<"),
    ("boundary", re.compile(r"(?<= )>=(?= )"), ">"),
    ("lock", re.compile(r"\s+FOR (?:NO KEY UPDATE|KEY SHARE|SHARE|UPDATE)\b(?: OF [\w, ]+)?"), ""),
    ("order", re.compile(r" DESC\b"), ""),
    ("order", re.compile(r"(?<=ORDER BY )([\w.]+)(?=[\s)\"'])(?! (?:DESC|ASC|FOR))"), r"\1 DESC"),
    ("number", re.compile(r"(?<=[\w)}]) [+-] 1\b(?!\w)"), ""),
    ("word", re.compile(r"\bUNION ALL\b"), "UNION"),
    ("word", re.compile(r"\bmax\("), "min("),
    ("word", re.compile(r"\bmin\("), "max("),
    ("word", re.compile(r"\bgreatest\("), "least("),
    ("word", re.compile(r"\bleast\("), "greatest("),
    ("word", re.compile(r"\bNOT (?=EXISTS|IN |\()"), ""),
    ("word", re.compile(r"\bDISTINCT (?!FROM|ON)"), ""),
    ("word", re.compile(r"\bLEFT JOIN\b"), "JOIN"),
    ("word", re.compile(r" IS NOT NULL\b"), " IS NULL"),
)
_COMMENT = re.compile(r"--.*")
_ITEM = re.compile(r"\(?[\w.]+(?:\([\w., ]*\))?")


class _Text(NamedTuple):
    """A string with its comments and Python blanked out, so that places are those of the file."""

    text: str
    at: int


def is_sql(text: str) -> bool:
    """Tell whether a string has SQL."""
    return _SQL.search(text) is not None


def changes_of_sql(text: str, at: int) -> Iterator[Change]:
    """Yield the changes of a string, as it is in the file from ``at``."""
    shown = _Text(_blank(text), at)
    for kind, pattern, after in _REPLACED:
        for match in pattern.finditer(shown.text):
            yield Change(f"sql {kind}", at + match.start(), at + match.end(), match.expand(after))
    yield from _conditions(shown)
    yield from _columns(shown)


def _blank(text: str) -> str:
    """Replace comments and what is in braces by as many other characters."""
    text = _COMMENT.sub(lambda match: "~" * len(match[0]), text)
    depth, shown = 0, []
    prefix = text[: min(text.find('"') % (len(text) + 1), text.find("'") % (len(text) + 1))]
    formatted = "f" in prefix.lower() or "{" in text
    for character in text:
        depth += (character == "{") if formatted else 0
        shown.append("x" if depth and character not in "{}" else character)
        depth -= (character == "}" and depth > 0) if formatted else 0
    return "".join(shown)


def _conditions(shown: _Text) -> Iterator[Change]:
    """Leave out one condition after AND or OR, and the first one after WHERE."""
    text, at = shown
    for match in re.finditer(r"\s+(AND|OR) ", text):
        if re.search(r"BETWEEN\s+\S+$", text[: match.start()]):
            continue
        end = _end_of_term(text, match.end())
        if text[match.end() : end].strip(" \n"):
            yield Change("sql condition", at + match.start(), at + end, "")
    for match in re.finditer(r"\b(?:WHERE|ON) ", text):
        end = _end_of_term(text, match.end())
        if (after := re.match(r"\s*AND ", text[end:])) is not None:
            yield Change("sql condition", at + match.end(), at + end + after.end(), "")


def _end_of_term(text: str, start: int) -> int:
    """Return where a condition, or an item of a list, ends that begins at ``start``."""
    depth, n, case = 0, start, 0
    while n < len(text):
        if text[n] in "([{":
            depth += 1
        elif text[n] in ")]}":
            depth -= 1
            if depth < 0:
                break
        elif depth == 0 and text[n] in '",;~':
            break
        elif depth == 0 and not (text[n - 1].isalnum() or text[n - 1] in "_."):
            word = _ENDS.match(text, n)
            inside, case = case, max(0, case + {"CASE": 1, "END": -1}.get(word[0] if word else "", 0))
            if word and word[0] != "CASE" and not inside and n > start and not _within(text, start, n):
                break
        n += 1
    return len(text[:n].rstrip(" \n"))


def _within(text: str, start: int, n: int) -> bool:
    """Tell whether the word at ``n`` belongs to the condition: IS DISTINCT FROM, or the AND of BETWEEN."""
    before = text[start:n]
    return before.endswith("DISTINCT ") or (text.startswith("AND", n) and bool(re.search(r"BETWEEN\s+\S+\s+$", before)))


def _columns(shown: _Text) -> Iterator[Change]:
    """Leave out one column that an UPDATE sets; write NULL for one that an INSERT ... SELECT takes."""
    text, at = shown
    for match in re.finditer(r"\bSET (?=\w+ = )", text):
        items = _items(text, match.end())
        for n, (start, end) in enumerate(items if len(items) > 1 else []):
            if n:
                yield Change("sql column", at + items[n - 1][1], at + end, "")
            else:
                yield Change("sql column", at + start, at + items[1][0], "")
    for match in re.finditer(r"INSERT INTO [^()]+\([^()]*\)\s+SELECT ", text):
        for start, end in _items(text, match.end()):
            if _ITEM.fullmatch(text[start:end]) and text[start:end] not in ("NULL", "0", "1"):
                yield Change("sql column", at + start, at + end, "NULL")


def _items(text: str, start: int) -> list[tuple[int, int]]:
    """Return where the items of a list are, which commas separate."""
    items = []
    while True:
        end = _end_of_term(text, start)
        items.append((start, end))
        if not text.startswith(",", end):
            return items
        start = end + 1 + len(text[end + 1 :]) - len(text[end + 1 :].lstrip(" \n"))
