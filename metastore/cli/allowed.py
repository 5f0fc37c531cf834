"""``allowed``: which rights a user has on an object, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from metastore.cli.context import Json, KindOption, find
from metastore.cli.output import console, write, write_json, write_lines
from metastore.governance.privileges import privileges
from metastore.kinds.entity import Entity
from metastore.store import Store

__all__ = ["register"]


def allowed(
    ctx: typer.Context,
    user: Annotated[str, typer.Argument(help="The name of a user.")],
    privilege: Annotated[str, typer.Argument(metavar="[PRIVILEGE]", help="A privilege, such as select_table.")],
    path: Annotated[str | None, typer.Argument(metavar="PATH", help="The object.", show_default=False)] = None,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show what a user may do, and why.

    With PRIVILEGE, whether the user has it on the object. Without PRIVILEGE, all privileges that the user has there.

    The exit code is 1 if the user does not have the privilege.
    """
    with ctx.obj.open() as store:
        entity = find(store, privilege if path is None else path, kind)
        if path is None:
            _show_all(store, user, entity, json)
            return
        decision = store.allowed(user, privilege, entity)
    if json:
        shown = {"user": user, "privilege": privilege, "path": entity.path, "kind": entity.kind}
        write_json({**shown, "allowed": decision.allowed, "because": decision.because})
    else:
        write(console(), "yes" if decision else "no", "green" if decision else "red")
        write_lines(console(), ([(f"  {why}", "dim")] for why in decision.because))
    if not decision:
        raise typer.Exit(1)


def _show_all(store: Store, user: str, entity: Entity, json: bool) -> None:
    """Show each privilege that a user has on an object of this kind, with the rule that gives it."""
    words = [word for word, kinds in privileges().items() if entity.kind in kinds]
    decided = [(word, store.allowed(user, word, entity)) for word in words]
    has = [(word, decision.because[-1]) for word, decision in decided if decision]
    if json:
        given = [{"privilege": word, "because": why} for word, why in has]
        write_json({"user": user, "path": entity.path, "kind": entity.kind, "privileges": given})
        return
    if not has:
        why = decided[0][1].because[-1] if decided else f"no privilege is for a {entity.kind}"
        write(console(), f"{user} has no privilege on {entity.path}: {why}")
        return
    width = max(len(word) for word, _ in has)
    write_lines(console(), ([(f"{word:<{width}}", ""), (f"  {why}", "dim")] for word, why in has))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(allowed)
