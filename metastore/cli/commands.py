"""The names of all commands.

A command is imported and built at its first use, because a call of the program uses only one.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Annotated, Any, Final

import typer

__all__ = ["MODULES", "Commands"]

MODULES: Final = {
    "maintenance": ("migrate", "backup", "verify", "gc"),
    "create": ("create",),
    "alter": ("alter",),
    "place": ("rename", "drop", "restore", "purge"),
    "show": ("ls", "show"),
    "find": ("find",),
    "governance": ("tags", "policies", "grant", "revoke", "who"),
    "allowed": ("allowed",),
    "history": ("history", "changes"),
    "diff": ("diff",),
    "past": ("pin", "revert"),
    "consumers": ("consumers",),
    "relay": ("relay",),
    "stats": ("stats",),
    "crawl": ("crawl",),
    "crawls": ("crawls",),
    "transfer": ("export", "import"),
    "loadtest": ("loadtest",),
    "console": ("console",),
    "serve": ("serve",),
    "secrets": ("secrets",),
    "drops": ("drops",),
    "leases": ("lease",),
    "cache": ("cache",),
}
"""The modules of this package that have commands, and the names that each registers. Help lists them in this order."""
_WRITERS: Final = frozenset(
    ("create", "alter", "rename", "drop", "restore", "purge", "tags", "policies", "grant", "revoke", "revert", "import")
)
"""The commands whose writes are in history: each takes ``--reason``."""


class Commands(UserDict[str, Any]):
    """The commands by name. While a command's module is not imported, ``data`` has the module's name in its place."""

    def __init__(self) -> None:
        super().__init__({name: module for module, names in MODULES.items() for name in names})

    def __getitem__(self, name: str) -> Any:
        if isinstance(self.data[name], str):
            self.data |= _built(self.data[name])
        return self.data[name]


def _built(module: str) -> dict[str, Any]:
    """Return the commands that a module of this package registers."""
    app = typer.Typer(rich_markup_mode=None)
    import_module(f"metastore.cli.{module}").register(app)
    for info in (
        *app.registered_commands,
        *(c for g in app.registered_groups if g.typer_instance for c in g.typer_instance.registered_commands),
    ):
        info.epilog = "Before the command: --url URL (else METASTORE_URL), --principal NAME. See: metastore --help"
    commands = dict(typer.main.get_group(app).commands)
    for name in _WRITERS & commands.keys():
        commands[name].params.append(_reason())
    return commands


def _note(ctx: typer.Context, text: str | None) -> None:
    ctx.obj.reason = text


def _writes(
    _: Annotated[
        str | None,
        typer.Option(
            "--reason", metavar="TEXT", help="The reason, for history and feed.", callback=_note, expose_value=False
        ),
    ] = None,
) -> None:
    """Declare the option that all commands that write have."""


def _reason() -> Any:
    app = typer.Typer()
    app.command()(_writes)
    return next(option for option in typer.main.get_command(app).params if "--reason" in option.opts)
