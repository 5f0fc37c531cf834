"""Texts for people: changes in words, how long ago, and names that cannot play tricks with a page."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from metastore.clock import SYSTEM
from metastore.kinds.change import EntityChange
from metastore.kinds.entity import Change, Version
from metastore.kinds.registry import KINDS, OWNED_KINDS
from metastore.kinds.secret import Secret, as_secret
from metastore.names import format_path, parse_path
from metastore.past.diff import Difference
from metastore.secrets.names import MASK, is_hidden, without_secrets

__all__ = [
    "ago",
    "change_in_words",
    "command",
    "done",
    "exactly",
    "leads_to",
    "now",
    "safe",
    "short",
    "steps_in_words",
    "value_text",
]

_TURNS: Final = {chr(c) for c in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400 * 365, "year"), (86_400 * 30, "month"), (86_400, "day"), (3600, "hour"), (60, "minute"))
_DONE: Final[Mapping[str, str]] = {
    "create": "created",
    "alter": "changed",
    "rename": "renamed",
    "move": "moved",
    "drop": "dropped",
    "restore": "restored",
    "enable": "enabled",
    "disable": "disabled",
    "purge": "purged",
}
_RELATED: Final[Mapping[tuple[str, str], str]] = {
    ("tag_on", "create"): "got the tag",
    ("tag_on", "drop"): "lost the tag",
    ("policy_on", "create"): "got the policy",
    ("policy_on", "drop"): "lost the policy",
    ("owner", "create"): "got the owner",
    ("owner", "alter"): "got another owner:",
    ("owner", "drop"): "lost the owner",
    ("membership", "create"): "was added to",
    ("membership", "drop"): "was removed from",
    ("grant", "create"): "got a grant to the role",
    ("grant", "alter"): "got another grant to the role",
    ("grant", "drop"): "lost a grant to the role",
}


def safe(text: object) -> str:
    """Return a text with escapes for characters that are invisible, or turn the direction of writing."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(_escape(c) if _plays_tricks(c) else c for c in plain)


def _plays_tricks(char: str) -> bool:
    return char in _TURNS or (char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def short(text: object, most: int = 80) -> str:
    """Return the beginning of a text in one line."""
    line = re.sub(r"\s+", " ", safe(text)).strip()
    return line if len(line) <= most else f"{line[: most - 1]}…"


def now() -> datetime:
    """Return the time of this server."""
    return datetime.fromtimestamp(SYSTEM.micros() / 1_000_000, UTC)


def ago(time: datetime) -> str:
    """Return how long ago a time was: "3 minutes ago"."""
    seconds = (now() - time).total_seconds()
    word = "ago" if seconds >= 0 else "ahead"
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            count = int(abs(seconds) // size)
            return f"{count:,} {unit}{'s' * (count != 1)} {word}"
    return "just now" if seconds > -2 else f"in {-seconds:.0f} seconds"


def exactly(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def command(*words: object) -> str:
    """Return the command of the command line that shows or does the same, in a form that is safe to paste."""
    return " ".join(["metastore", *[_quoted(str(word)) for word in words if word is not None]])


def _quoted(word: str) -> str:
    """Return a word for a shell. A terminal obeys control characters even between quotes, so escapes replace them."""
    if not any(_controls(char) for char in word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    escaped = [f"\\u{ord(char):04x}" if _controls(char) else char for char in plain]
    return "$'" + "".join(escaped) + "'"


def _controls(char: str) -> bool:
    return unicodedata.category(char) == "Cc"


def done(action: str) -> str:
    """Return an action in the past tense, such as "dropped"."""
    return _DONE.get(action, action)


def value_text(key: str, value: object) -> str:
    """Return a property's value; a secret in plain text is hidden, a reference to one is shown."""
    if isinstance(value, Secret):
        return value.stored
    return MASK if is_hidden(key) and value not in (None, "") else str(value)


def steps_in_words(step: Version) -> list[str]:
    """Return the changes of one step in phrases, the most important one first."""
    if isinstance(step, Change) and (step.kind, step.action) in _RELATED and step.other_path:
        return [f"{_RELATED[step.kind, step.action]} {safe(step.other_path)}"]
    if step.action in ("rename", "move") and step.path_before and step.path_after:
        return [f"{done(step.action)} from {safe(step.path_before)}", *map(change_in_words, step.changes)]
    if step.action == "alter" and step.changes:
        return [change_in_words(one) for one in step.changes]
    return [done(step.action), *map(change_in_words, step.changes)]


def leads_to(change: Change | Difference) -> tuple[str, str | None] | None:
    """Return the path and kind of the entity that a change belongs to; None if the change has no path.

    An owned row leads to its owner, a relation to its object.
    """
    path = change.path_after or change.path_before
    if path is None:
        return None
    if change.kind in OWNED_KINDS:
        names = parse_path(path)
        return (format_path(names[:-1]), None) if len(names) > 1 else None
    if change.other_path is not None or change.kind not in KINDS:
        return path, None
    return path, change.kind


def change_in_words(change: EntityChange) -> str:
    """Return one change of an entity as a phrase."""
    fields = without_secrets(change.to_json())
    said = _SAID.get(change.tag)
    if said is not None:
        return short(said(fields), 200)
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", change.tag.rpartition(".")[2]).lower()
    texts = [f"{key} {short(value, 40)}" for key, value in fields.items() if value is not None and key != "change"]
    return short(f"{words}: {', '.join(texts)}" if texts else words, 200)


def _path(value: object) -> str:
    return format_path([str(name) for name in value]) if isinstance(value, list | tuple) else str(value)


def _property(fields: Mapping[str, Any]) -> str:
    value = str(fields.get("value"))
    return f"set the property {fields['key']} to {short(value_text(str(fields['key']), as_secret(value) or value), 60)}"


_SAID: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "SetComment": lambda f: (
        f"set the comment to “{short(f.get('text'), 60)}”" if f.get("text") else "removed the comment"
    ),
    "SetProperty": _property,
    "RemoveProperty": lambda f: f"removed the property {f['key']}",
    "AddColumn": lambda f: f"added the column {_path(f['path'])} ({f['type']})",
    "RenameColumn": lambda f: f"renamed the column {_path(f['path'])} to {f['to']}",
    "DropColumn": lambda f: f"dropped the column {_path(f['path'])}",
    "RetypeColumn": lambda f: f"changed the type of {_path(f['path'])} to {f['type']}",
    "MoveColumn": lambda f: f"moved the column {_path(f['path'])}",
    "SetColumnComment": lambda f: f"set the comment of the column {_path(f['path'])}",
    "SetColumnDefault": lambda f: f"set the default of the column {_path(f['path'])}",
    "SetColumnNullable": lambda f: (
        f"made the column {_path(f['path'])} {'nullable' if f.get('nullable') else 'required'}"
    ),
    "SetLocation": lambda f: f"set the location to {f.get('location')}",
    "SetFormat": lambda f: f"set the format to {f.get('format')}",
    "StartJob": lambda f: f"a worker started it: {f.get('worker')}",
    "FinishJob": lambda f: f"it ended: {f.get('status')}",
    "CancelJob": lambda _: "asked it to end",
}
