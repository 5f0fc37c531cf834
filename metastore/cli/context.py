"""Turn the path that a user gave into an entity. All commands share this."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from metastore.cli.output import tell, time
from metastore.cli.unregistered import unregistered_at
from metastore.errors import CREATE_IT, EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS, kind_named
from metastore.managers.all import Managers
from metastore.managers.declared import DeclaredManager
from metastore.managers.pages.dropped import dropped_at
from metastore.names import format_path, parse_path
from metastore.port.unreadable import Unreadable

__all__ = [
    "Json",
    "KindOption",
    "Reports",
    "SkipUnreadable",
    "child_kinds",
    "find",
    "kinds_at",
    "left_out",
    "manager_of",
]

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
KindOption = Annotated[
    str | None,
    typer.Option("--kind", help="The kind, where several share the name.", show_default=False),
]
Reports = Annotated[
    Path | None,
    typer.Option(
        "--reports",
        metavar="FOLDER",
        help="A folder of reports for the console. It has verify.json and load tests.",
        show_default=False,
    ),
]
SkipUnreadable = Annotated[
    bool,
    typer.Option("--skip-unreadable", help="Leave out damaged rows. Each is named on standard error."),
]


_SIBLINGS = 1000
"""How many siblings of each kind are compared with a missing name."""


def left_out(skip: bool) -> Unreadable | None:
    """Return the function that handles damaged rows: with ``skip``, it reports each one.

    None: readers raise an error.
    """
    return (lambda error: tell(f"left out: {error}")) if skip else None


def manager_of(store: Managers, kind: str) -> DeclaredManager:
    """Return the manager of a kind. A kind that is not registered gets a manager with the common methods."""
    return store.manager(kind) if kind in KINDS else DeclaredManager(store._session, kind_named(kind))  # noqa: SLF001


def child_kinds(kind: str | None) -> list[str]:
    """Return the kinds whose entities can have a parent of ``kind``; None is the root."""
    return [k.name for k in KINDS.values() if (kind in k.parents if kind else not k.parents)]


def find(store: Managers, path: str, wanted: str | None) -> Entity:
    """Return the entity at ``path``. Raises EntityNotFound, or InvalidArgument if several kinds share the name."""
    names = parse_path(path)
    if wanted is not None:
        return _of_kind(store, names, wanted)
    kinds = kinds_at(len(names))
    entities: list[Entity] = [e for kind in kinds if (e := manager_of(store, kind).load_many([names])[0]) is not None]
    entities = entities or unregistered_at(store, names)
    if len(entities) > 1:
        raise InvalidArgument(
            f"{format_path(names)} is the name of a {' and of a '.join(e.kind for e in entities)}; "
            f"choose one: --kind {' or --kind '.join(e.kind for e in entities)}"
        )
    if entities:
        return entities[0]
    for kind in kinds:
        try:
            manager_of(store, kind).load(names)  # raises the precise error, such as DropPending
        except EntityNotFound as error:
            missing = error
            continue
        return find(store, path, wanted)  # another process has just created the entity
    hint = _dropped(store, kinds, names) or _suggestion(store, kinds, names)
    raise EntityNotFound(missing.path, str(missing).replace(CREATE_IT, hint or CREATE_IT)) from None


def _of_kind(store: Managers, names: tuple[str, ...], wanted: str) -> Entity:
    if wanted not in KINDS:
        for entity in unregistered_at(store, names):
            if entity.kind == wanted:
                return entity
    loaded: Entity = store.manager(wanted).load(names)
    return loaded


def _dropped(store: Managers, kinds: list[str], names: tuple[str, ...]) -> str:
    """Return a hint: who dropped the last entity with this name, and how to restore it; "" if there is none."""
    dropped: list[Entity] = []
    for kind in kinds:
        try:
            dropped += dropped_at(manager_of(store, kind), names)
        except MetastoreError:  # the parent is missing, too, and the error already says so
            return ""
    if not dropped:
        return ""
    last = max(dropped, key=lambda one: one.modified_at)
    by = "" if last.modified_by is None else f" by {last.modified_by}"
    return (
        f"a {last.kind} of this name was dropped{by} at {time(last.modified_at)} UTC; bring it back with: metastore "
        f"restore {last.path} --id {last.id}"
    )


def _suggestion(store: Managers, kinds: list[str], names: tuple[str, ...]) -> str:
    """Return a question that names the siblings with similar names; "" if there are none."""
    siblings: list[str] = []
    for kind in kinds:
        try:
            siblings += islice(manager_of(store, kind).names(names[:-1] or None), _SIBLINGS)
        except MetastoreError:  # the parent is missing, too, and the error already says so
            return ""
    alike = get_close_matches(names[-1], siblings, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(format_path((*names[:-1], name)) for name in alike)}?" if alike else ""


def kinds_at(depth: int) -> list[str]:
    """Return the kinds that a path of ``depth`` names can lead to."""
    return [kind.name for kind in KINDS.values() if families_of(kind, depth)]
