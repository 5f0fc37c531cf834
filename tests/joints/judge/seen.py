"""A call's answer or error, as statements about paths and entities that were true at one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from metastore.checker.records import Seen
from tests.joints.judge.call import DROPS, Call
from tests.joints.world import NOWHERE, kind_of, names_below

__all__ = ["seen"]


def seen(call: Call) -> Iterator[Seen]:
    """Yield what a call saw. What a user may not see is not there for it: its errors say nothing."""
    if call.end is None:
        return iter(())
    if call.error is not None:
        return iter(()) if call.user is not None else _in_error(call)
    see = _SEE.get(call.action)
    if see is not None:
        return see(call)
    changed_nothing = isinstance(call.answer, dict) and call.answer["by"] not in (call.principal, call.user)
    return iter([_entity(call.answer, call.path)] if changed_nothing else [])


def _entity(one: dict[str, Any], path: str | None) -> Seen:
    """Return that an entity was seen: by the path that was asked for, else by the one that it says."""
    path = path or one["path"]
    return Seen(path, True, one["id"], one["version"], kind_of(path))


def _there(path: str | None, there: bool, version: int | None = None) -> Iterator[Seen]:
    if path is not None:
        yield Seen(path, there, None, version, kind_of(path))


def _loaded(call: Call) -> Iterator[Seen]:
    if call.answer is not None:
        yield _entity(call.answer, call.path)


def _loaded_many(call: Call) -> Iterator[Seen]:
    for path, one in zip(call.paths, call.answer, strict=True):
        yield Seen(path, False, kind=kind_of(path)) if one is None else _entity(one, path)


def _listed(call: Call) -> Iterator[Seen]:
    """Yield what a whole listing says: of each name of the world whether it is there."""
    yield from _there(call.path, True)
    found = {one if isinstance(one, str) else one["path"].rpartition(".")[2]: one for one in call.answer}
    for name in names_below(call.path or ""):
        path, one = f"{call.path}.{name}", found.get(name)
        if isinstance(one, dict):
            yield _entity(one, path)
        else:
            yield from _there(path, one is not None)


def _dropped(call: Call) -> Iterator[Seen]:
    if call.answer is False:
        yield from _there(call.path, False)


def _read_in_block(call: Call) -> Iterator[Seen]:
    for (step, path), one in zip(call.steps, call.answer, strict=True):
        if step == "load":
            yield _entity(one, path)


_SEE: Final[dict[str, Callable[[Call], Iterator[Seen]]]] = {
    "load": _loaded,
    "exists": lambda call: _there(call.path, call.answer),
    "load_many": _loaded_many,
    "page": _listed,
    "names_page": _listed,
    "transaction": _read_in_block,
    "freeze": _read_in_block,
    **dict.fromkeys(DROPS, _dropped),
}


def _in_error(call: Call) -> Iterator[Seen]:
    path, missing, found = (call.about.get(name) for name in ("path", "missing", "found"))
    if call.path is None:
        return  # by id: what is not live may be the entity, or anything above it
    if call.error == "NotEmpty":
        yield Seen(call.path, True, kind=kind_of(call.path), of="children")
    elif call.error == "EntityNotFound" and missing is not None:
        yield from _there(missing, False)
    elif call.error == "EntityNotFound" and call.action == "restore":
        yield Seen(call.path, False, kind=kind_of(call.path), of="dropped")
    elif path is not None and path.endswith(NOWHERE):
        yield from _there(call.path, True)  # the table was there, without that column
    elif call.error in ("EntityNotFound", "EntityAlreadyExists"):
        yield from _there(path, call.error == "EntityAlreadyExists")
    elif call.error == "VersionConflict" and isinstance(found, int):
        yield from _there(path, True, found)
