"""``tags``, ``policies``, ``grant``, ``revoke``, ``who``: the tags, policies, owner and grants of an object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from metastore.cli.around import granted
from metastore.cli.context import Json, KindOption, find
from metastore.cli.output import Line, console, tell, write, write_json, write_lines
from metastore.errors import InvalidArgument
from metastore.kinds.attached import Attached
from metastore.managers.tags_and_policies import Policies, Tags
from metastore.store import Store

__all__ = ["register"]

PathArgument = Annotated[str, typer.Argument(help="The object, such as lake.catalog.schema.table.")]
ColumnOption = Annotated[str | None, typer.Option("--column", help="A column of the object.", show_default=False)]
TargetsOption = Annotated[bool, typer.Option("--targets", help="PATH is the tag or policy: list its objects.")]
AttachOption = Annotated[list[str] | None, typer.Option("--attach", help="Attach this: PATH, or PATH=VALUE for a tag.")]
DetachOption = Annotated[list[str] | None, typer.Option("--detach", help="Detach this: PATH, or PATH=VALUE for a tag.")]


def tags(
    ctx: typer.Context,
    path: PathArgument,
    column: ColumnOption = None,
    attach: AttachOption = None,
    detach: DetachOption = None,
    targets: TargetsOption = False,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show, attach and detach the tags of an object.

    It shows its own, and those inherited from above. The exit code is 1 if there was nothing to detach.

    Example: metastore tags lake.sales.shop.orders --column email --attach lake.pii=email
    """
    with ctx.obj.open() as store:
        _attached(store, store.tags, path, column, attach, detach, targets, kind, json)


def policies(
    ctx: typer.Context,
    path: PathArgument,
    column: ColumnOption = None,
    attach: AttachOption = None,
    detach: DetachOption = None,
    targets: TargetsOption = False,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show, attach and detach the policies of an object.

    It shows its own, and those inherited from above. The exit code is 1 if there was nothing to detach.
    """
    with ctx.obj.open() as store:
        _attached(store, store.policies, path, column, attach, detach, targets, kind, json)


def _attached(
    store: Store,
    manager: Tags | Policies,
    path: str,
    column: str | None,
    attach: list[str] | None,
    detach: list[str] | None,
    targets: bool,
    kind: str | None,
    json: bool,
) -> None:
    if targets:
        if attach or detach or column is not None or kind is not None:
            raise InvalidArgument("--targets lists objects; leave out --attach, --detach, --column and --kind")
        _list(manager.targets(path), json, _target)
        return
    target = find(store, path, kind)
    attaching, detaching = ([_valued(text) for text in texts or ()] for texts in (attach, detach))
    for other, value in attaching:
        manager.attach(target, other, value=value, column=column)
    missing = []
    for (other, value), text in zip(detaching, detach or (), strict=True):
        given: dict[str, Any] = {} if value is None else {"value": value}
        if not manager.detach(target, other, column=column, **given):
            missing.append(text)
    _list(manager.on(target, column=column), json, _own)
    for text in missing:
        tell(f"{text} is not attached to {path} itself; nothing is detached")
    if missing:
        raise typer.Exit(1)


def _valued(text: str) -> tuple[str, str | None]:
    """Return a tag and its value, if it has one. An empty value is an error: it may come from an unset variable."""
    other, equals, value = text.partition("=")
    if equals and not value:
        raise InvalidArgument(f"{text} has no value; write PATH=VALUE, or PATH alone")
    return other, value or None


def _list(attached: Iterable[Attached], json: bool, line: Any) -> None:
    if json:
        for one in attached:
            write_json(one.to_dict(), lines=True)
    else:
        write_lines(console(), (line(one) for one in attached))


def _own(one: Attached) -> Line:
    value = "" if one.value is None else f" = {one.value}"
    origin = "" if one.inherited_from is None else f"  (from {one.inherited_from})"
    return [(one.path + value, ""), (origin, "dim")]


def _target(one: Attached) -> Line:
    column = "" if one.column is None else f"  column {one.column}"
    value = "" if one.value is None else f" = {one.value}"
    return [(f"{one.target_kind} {one.target_path}{column}{value}", "")]


# --- grants

RoleArgument = Annotated[str, typer.Argument(help="The role, such as lake.reader.")]
PrivilegeArgument = Annotated[str | None, typer.Argument(help="A privilege, such as select_table.", show_default=False)]
OnArgument = Annotated[str | None, typer.Argument(metavar="ON", help="The object.", show_default=False)]


def grant(
    ctx: typer.Context,
    role: RoleArgument,
    privilege: PrivilegeArgument = None,
    on: OnArgument = None,
    to: Annotated[str | None, typer.Option("--to", help="Give the role to this user or group.")] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny the privilege instead.")] = False,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Grant a privilege to a role, or a role to a user.

    A role may be granted to a group too.

    Example: metastore grant lake.reader select_table lake.sales; metastore grant lake.reader --to lake.analysts
    """
    effect: Any = "deny" if deny else "allow"
    with ctx.obj.open() as store:
        if to is not None:
            if privilege is not None or deny or kind is not None:
                raise InvalidArgument("--to gives the role itself; leave out PRIVILEGE, ON, --deny and --kind")
            store.roles.assign(role, to)
            _say({"role": role, "member": to}, f"{to} has the role {role}", json)
            return
        word, target = _both(privilege, on)
        made = store.roles.grant(role, word, find(store, target, kind), effect=effect)
    _say(made.to_dict(), f"{role} is {'denied' if deny else 'granted'} {word} on {target}", json)


def revoke(
    ctx: typer.Context,
    role: RoleArgument,
    privilege: PrivilegeArgument = None,
    on: OnArgument = None,
    frm: Annotated[str | None, typer.Option("--from", help="Take the role from this user or group.")] = None,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Take back a privilege or a role.

    A privilege is taken from a role, or a role from a user or group.

    The exit code is 1 if there was nothing to take back.
    """
    with ctx.obj.open() as store:
        if frm is not None:
            if privilege is not None or kind is not None:
                raise InvalidArgument("--from takes the role itself back; leave out PRIVILEGE, ON and --kind")
            done, missing = store.roles.unassign(role, frm), f"{frm} does not have the role {role}"
            taken = f"the role {role} was taken back from {frm}"
            shown = {"role": role, "member": frm}
        else:
            word, target = _both(privilege, on)
            done = store.roles.revoke(role, word, find(store, target, kind))
            missing = f"the role {role} has no {word} on {target}"
            taken = f"{word} on {target} was taken back from the role {role}"
            shown = {"role": role, "privilege": word, "on": target}
    if done or json:
        _say({**shown, "taken_back": done}, taken, json)
    else:
        tell(f"{missing}; nothing is taken back; metastore who PATH shows what is granted")
    if not done:
        raise typer.Exit(1)


def _say(shown: dict[str, Any], text: str, json: bool) -> None:
    if json:
        write_json(shown)
    else:
        write(console(), text)


def _both(privilege: str | None, on: str | None) -> tuple[str, str]:
    if privilege is None or on is None:
        raise InvalidArgument("name a privilege and an object, or a user or group with --to or --from")
    return privilege, on


def who(ctx: typer.Context, path: PathArgument, kind: KindOption = None, json: Json = False) -> None:
    """Show the owner and the grants of an object.

    Grants on its ancestors hold for it too, and are shown.
    """
    with ctx.obj.open() as store:
        entity = find(store, path, kind)
        owner = store.owners.of(entity)
        grants = list(granted(store, entity))
    shown = {"path": entity.path, "kind": entity.kind, "owner": None if owner is None else owner.path, "grants": grants}
    if json:
        write_json(shown)
        return
    write(console(), f"owner: {shown['owner'] or 'none'}")
    write_lines(console(), ([(f"{g['effect']} {g['privilege']}  {g['role']}  on {g['on']}", "")] for g in grants))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (tags, policies, grant, revoke, who):
        app.command()(command)
