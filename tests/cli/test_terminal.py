"""The command line in a terminal of 80 and of 120 columns: nothing is cut off, and no word is broken."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import metastore as ms
from metastore.cli.app import app
from tests.cli.test_cli import environment, fill, here

WIDTHS = (80, 120)
LONG = "orders_of_the_northern_region_with_all_their_lines"


def in_terminal(columns: int, url: str, *words: str) -> str:
    """Return what a command shows in a terminal, without colours and with line feeds only."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "metastore", "--url", url, *words]
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=environment(TERM="xterm-256color")) as process:
        os.close(follower)
        shown = b"".join(_chunks(leader))
    os.close(leader)
    assert process.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def _chunks(leader: int) -> Iterator[bytes]:
    with suppress(OSError):  # EIO: the command has ended
        while chunk := os.read(leader, 65536):
            yield chunk


@pytest.fixture
def filled(url: str) -> str:
    """A database with a little of everything, and a table whose name takes most of a line."""
    fill(url)
    with ms.open(url, principal="a principal of several words") as store:
        table = store.tables.create(("lake", "c", "s", LONG), columns=[ms.Column("id", "long", comment="the " * 30)])
        store.tables.alter(table, ms.AddColumn("note", "string"), ms.SetComment("one word after another " * 9))
    return url


def commands() -> Iterator[tuple[str, ...]]:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    for name, command in root.commands.items():
        yield (name,)
        if isinstance(command, TyperGroup):
            yield from ((name, inner) for inner in command.commands)


def test_no_help_text_in_a_list_of_commands_is_cut(url: str) -> None:
    for words in ((), ("lease",)):
        shown = here(url, *words, "--help").stdout
        listed = shown.partition("Commands:\n")[2].splitlines()
        assert len(listed) > 4
        assert [line for line in listed if not line.endswith(".") or line.endswith("...") or len(line) > 80] == []


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_help_of_a_command_fits(url: str, words: tuple[str, ...]) -> None:
    """The first sentence is short; no line is longer than the terminal."""
    shown = here(url, *words, "--help").stdout
    first = shown.splitlines()[2].strip()
    assert len(first) <= 50, first
    assert first.endswith(".")
    assert [line for line in shown.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "words",
    [
        ("ls", "lake.c", "-r"),
        ("show", f"lake.c.s.{LONG}"),
        ("history", f"lake.c.s.{LONG}"),
        ("diff", f"lake.c.s.{LONG}", "1"),
        ("changes",),
        ("find", "lake"),
        ("stats",),
    ],
    ids=lambda words: words[0],
)
def test_no_word_is_broken(filled: str, words: tuple[str, ...], columns: int) -> None:
    """Every word that a pipe gets stands on the terminal too; a longer line has one word that needs the room."""
    shown = in_terminal(columns, filled, *words)
    piped = here(filled, *words).stdout
    assert set(re.findall(r"\S+", piped)) - set(re.findall(r"\S+", shown)) - {"--"} == set()
    for line in shown.splitlines():
        assert len(line) <= columns or max(map(len, line.split())) > columns // 2, line
    assert not any(line.endswith(" ") for line in shown.splitlines() if words[0] in ("history", "stats"))


def test_a_row_that_does_not_fit_is_written_as_facts(filled: str) -> None:
    wide, narrow = (in_terminal(columns, filled, "history", f"lake.c.s.{LONG}") for columns in (120, 44))
    assert wide.splitlines()[0].split() == ["Version", "Time", "(UTC)", "Action", "By", "What"]
    assert f"What        lake.c.s.{LONG}" in narrow
    assert "Action      create" in narrow
