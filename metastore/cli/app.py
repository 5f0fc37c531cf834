"""Combine the commands, and turn the errors of all commands into one line and an exit code."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Sequence
from io import TextIOBase
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from metastore.cli.commands import Commands
from metastore.cli.settings import Settings, os_user
from metastore.errors import CREATE_IT, LeaseHeld, LeaseLost, MetastoreError
from metastore.kinds.installed import load_installed_kinds
from metastore.port.format import SCHEMA_FORMAT
from metastore.version import __version__

__all__ = ["app", "run"]

_CODES: dict[type[MetastoreError], int] = {LeaseHeld: 75, LeaseLost: 124}
"""The errors with exit codes of their own, for scripts: EX_TEMPFAIL of sysexits.h, and the code of timeout(1)."""

_IN_THE_SHELL = (
    (CREATE_IT, "see: metastore ls"),
    ("drop it with cascade=True", "give --cascade"),
    ("see store.drops.pending()", "see: metastore drops"),
    ("see store.drops.resume()", "see: metastore drops resume"),
    ("see the manager's history()", "see: metastore history"),
    ("see the manager's names()", "see: metastore crawls"),
    ("evict it with force", "evict it with --force"),
    ("give one as value=", "write TAG=VALUE"),
    ("give it with to=", "give it with --to"),
)
"""Pairs of a hint for programs, as it is in messages, and the hint for a shell."""


class _Interrupted(Exception):
    """The user pressed Ctrl-C."""


class _Group(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Commands()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None


app = typer.Typer(
    name="metastore",
    cls=_Group,
    rich_markup_mode=None,
    help="A versioned, optimistic store for data-catalog metadata.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"metastore {__version__}, database format {SCHEMA_FORMAT}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _settings(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Option("--url", help="The database: METASTORE_URL, else sqlite:///metastore.db.", show_default=False),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal",
            help="The user's name in the history. By default, the operating system's user.",
            show_default=False,
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    ctx.obj = Settings(url, os_user() if principal is None else principal)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
    load_installed_kinds()


@functools.cache
def _command() -> Any:
    """Build the root command, once."""
    return typer.main.get_command(app)


class _Closed(TextIOBase):
    """Replaces a closed standard output: its use raises an error."""

    def write(self, _: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed")

    @property
    def buffer(self) -> NoReturn:
        """The stream of bytes is closed too."""
        raise OSError(errno.EBADF, "standard output is closed")


def _open_streams() -> None:
    """Make sure that stdin, stdout and stderr are streams: Python sets a closed one to None."""
    streams: Any = sys
    if streams.stdin is None:
        streams.stdin = Path(os.devnull).open()  # noqa: SIM115  (for the whole process)
    if streams.stdout is None:
        streams.stdout = _Closed()
    if streams.stderr is None:
        streams.stderr = Path(os.devnull).open("w")  # noqa: SIM115  (for the whole process)


def _let_go() -> None:
    """Drop the output that stdout does not accept: Python would try again at its exit, and print an error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. A user's error is one line on stderr."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _main(arguments)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # the reader, such as head, has closed the pipe: return a shell's code for SIGPIPE
        _let_go()
        return 141
    except (_Interrupted, KeyboardInterrupt, typer.Abort):  # Abort: Ctrl-C, or no input, at a question
        return _say("interrupted", 130)
    except MetastoreError as error:
        message = str(error)
        for call, command in _IN_THE_SHELL:
            message = message.replace(call, command)
        return _say(message, _CODES.get(type(error), 1))
    except OSError as error:
        _let_go()
        return _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _say(_misused(error), 1)


def _main(arguments: Sequence[str]) -> Any:
    """Run the command. If a pipe's reader has closed it, click exits with 1: raise the original error instead."""
    try:
        return _command().main(list(arguments), prog_name="metastore", standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise


def _misused(error: Any) -> str:
    """Return the message for a wrong command, option or argument. (Typer may contain its own click.)"""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "metastore"
    option = getattr(error, "option_name", None)
    if option in ("--url", "--principal"):
        return f"{option} comes before the command: metastore {option} … {command.partition(' ')[2]}"
    return f"{error.format_message().rstrip('.')}; see: {command} --help"


def _say(message: str, code: int) -> int:
    from metastore.cli.output import tell  # noqa: PLC0415  (it imports what shows entities)

    tell(message)
    return code
