"""Every command in a terminal of 80 and of 120 columns: nothing is cut off, and no word is broken."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import ioctl
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from metastore.cli.app import app
from tests.cli.every_command import COMMANDS, LONG, fill_more, split
from tests.cli.test_cli import ROOT, environment, fill, here

pytestmark = [pytest.mark.each_run_on("sqlite"), pytest.mark.one_in(3)]  # a command knows nothing of the database

WIDTHS = (80, 120)


def in_terminal(columns: int, url: str, *words: str) -> str:
    """Return what a command of ours shows in a terminal."""
    return shown_by(columns, [sys.executable, "-m", "metastore", "--url", url, *words])


def shown_by(columns: int, command: list[str]) -> str:
    """Return what a program shows in a terminal, without colours and with line feeds only."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=environment(TERM="xterm-256color")) as process:
        os.close(follower)
        shown = b"".join(_chunks(leader))
    os.close(leader)
    assert process.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r\n", "\n")


def _chunks(leader: int) -> Iterator[bytes]:
    with suppress(OSError):  # EIO: the command has ended
        while chunk := os.read(leader, 65536):
            yield chunk


@pytest.fixture
def filled(url: str, tmp_path: Path) -> str:
    """A database with a little of everything, and a table whose name takes most of a line."""
    fill(url)
    fill_more(url, tmp_path)
    return url


def commands() -> Iterator[tuple[str, ...]]:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    for name, command in root.commands.items():
        yield (name,)
        if isinstance(command, TyperGroup):
            yield from ((name, inner) for inner in command.commands)


def test_no_help_text_in_a_list_of_commands_is_cut() -> None:
    for words in ((), ("lease",)):
        shown = here("sqlite://", *words, "--help").stdout
        listed = shown.partition("Commands:\n")[2].splitlines()
        assert len(listed) > 4
        assert [line for line in listed if not line.endswith(".") or line.endswith("...") or len(line) > 80] == []


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_help_of_a_command_fits(words: tuple[str, ...]) -> None:
    """The first sentence is short; no line is longer than the terminal."""
    shown = here("sqlite://", *words, "--help").stdout
    first = shown.splitlines()[2].strip()
    assert len(first) <= 50, first
    assert first.endswith(".")
    assert [line for line in shown.splitlines() if len(line) > 80] == []


@dataclass(frozen=True)
class World:
    """A database with a little of everything, and a folder with files; each run gets a copy."""

    folder: Path

    @contextmanager
    def copy(self) -> Iterator[list[str]]:
        """Give the command that runs all commands on a copy, whose path is short."""
        with TemporaryDirectory(prefix="every") as name:
            to = Path(name) / "c"
            shutil.copytree(self.folder, to, symlinks=True)
            yield [sys.executable, "-m", "tests.cli.every_command", f"sqlite:///{to / 'all.db'}", str(to)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("every") / "world"
    folder.mkdir()
    url = f"sqlite:///{folder / 'all.db'}"
    fill(url)
    fill_more(url, folder)
    return World(folder)


@pytest.fixture(scope="module")
def piped(world: World) -> dict[str, str]:
    """What each command writes to a pipe."""
    with world.copy() as command:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, check=False, env=environment(), **pipes)
    assert done.returncode == 0, done.stdout
    return split(done.stdout)


def in_tmux(columns: int, command: list[str]) -> str:
    """Return the lines that tmux shows: those that it had to wrap are several."""
    tmux = ["tmux", "-L", f"metastore-{os.getpid()}-{columns}", "-f", "/dev/null"]
    script = f"{shlex.join(command)} 2>&1; tmux -L {tmux[2]} wait-for -S done; sleep 60"
    size = ["-x", str(columns), "-y", "50"]
    options = ["start-server", ";", "set-option", "-g", "history-limit", "100000", ";"]
    run = partial(subprocess.run, check=True, capture_output=True, text=True, env=environment(LC_ALL="C.UTF-8"))
    try:
        run([*tmux, "-u", *options, "new-session", "-d", *size, "-c", str(ROOT), script])
        run([*tmux, "wait-for", "done"], timeout=120)
        shown: str = run([*tmux, "capture-pane", "-p", "-S", "-"]).stdout
    finally:
        run([*tmux, "kill-server"])
    return shown


@pytest.mark.parametrize(
    ("terminal", "columns"),
    [
        (shown_by, 80),
        *[pytest.param(*on, marks=pytest.mark.long) for on in ((shown_by, 120), (in_tmux, 80), (in_tmux, 120))],
    ],
)
def test_no_command_breaks_a_word_or_a_line(
    terminal: Callable[[int, list[str]], str], columns: int, world: World, piped: dict[str, str]
) -> None:
    """The terminal shows every word that a pipe gets; a longer line has one word that needs the room."""
    if terminal is in_tmux and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: apt-get install tmux")
    with world.copy() as command:
        shown = split(terminal(columns, command))
    assert list(shown) == [*(str(n) for n in range(len(COMMANDS))), "end 0"]
    for number, (_, line) in enumerate(COMMANDS):
        here, there = (as_words(one[str(number)]) for one in (shown, piped))
        if line == "secrets new-key":  # another word each time, and one that fits
            continue
        # what tmux wraps is a word that no line has room for
        assert {word for word in there - here if len(word) < columns - 20} == set(), line
        for row in shown[str(number)].splitlines():
            assert len(row) <= columns or max(map(len, row.split())) > columns // 2, (line, row)


def as_words(text: str) -> set[str]:
    """Return the words of a text without what differs from run to run: numbers, ids, folders."""
    words = re.sub(r"/\S*/", "/", text).split()
    return {re.sub(r"[0-9a-f]{8,}|\d+", "0", word) for word in words} - {"--"}


def test_every_command_is_tried() -> None:
    known = set(commands())
    tried = {
        next(n for n in (words[:2], words[:1]) if n in known) for _, line in COMMANDS if (words := tuple(line.split()))
    }
    groups = {words[:1] for words in known if len(words) > 1}
    assert tried | groups == known, "commands that no line of every_command has"


def test_a_row_that_does_not_fit_is_written_as_facts(filled: str) -> None:
    wide, narrow = (in_terminal(columns, filled, "history", f"lake.c.s.{LONG}") for columns in (120, 44))
    assert wide.splitlines()[0].split() == ["Version", "Time", "(UTC)", "Action", "By", "What"]
    assert f"What        lake.c.s.{LONG}" in narrow
    assert "Action      create" in narrow
