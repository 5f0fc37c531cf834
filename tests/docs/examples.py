"""The examples of a Markdown file, and how they are run.

All of a file's ```` ```python ```` blocks run in order, in one namespace, in one folder. If the last line of a
block ends with ``# raises: ErrorName``, it must raise that. Of a ```` ```console ```` block the lines that begin
with ``$ metastore`` are run in the same folder, up to a pipe or a redirection, and must end with exit code 0, or
with 1 if they end with ``# exit 1`` or the line shown below is an error (``metastore: …``). Not run: other
commands, ``metastore crawl`` and ``loadtest``, which need Spark (tests/crawl and tests/loadtest run them), and
``console``, which goes on until Ctrl-C (tests/console runs it).
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from metastore.cli.app import run as run_command

__all__ = ["Block", "blocks", "failures"]

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^( *)```(python|console)\s*\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)
_RAISES = re.compile(r"# raises: (\w+)\s*$")
_TIMEOUT = 60
_TERMINAL = {"COLUMNS": "120", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Block:
    """One example, and the line of the file where it begins."""

    language: str
    line: int
    text: str


def blocks(text: str) -> list[Block]:
    """Return the examples of a Markdown text."""
    found = []
    for match in _FENCE.finditer(text):
        indent, language, body = match.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        found.append(Block(language, text.count("\n", 0, match.start(3)) + 1, "\n".join(lines)))
    return found


def failures(text: str, name: str, folder: Path, namespace: dict[str, Any]) -> Iterator[str]:
    """Run the examples of a text in ``folder``, the current one; yield what is wrong with each that fails."""
    for block in blocks(text):
        where = f"{name}, line {block.line}"
        if block.language == "python":
            yield from _python(block, where, namespace)
        else:
            yield from _console(block, where, folder)


def _python(block: Block, where: str, namespace: dict[str, Any]) -> Iterator[str]:
    last = (block.text.rstrip().splitlines() or [""])[-1]
    promised = match[1] if (match := _RAISES.search(last)) else None
    raised = None
    try:
        # the lines before it, so that a traceback names the line of the file
        exec(
            compile("\n" * (block.line - 1) + block.text, where.partition(",")[0], "exec", dont_inherit=True), namespace
        )
    except Exception as error:  # noqa: BLE001  (whatever it is, it is reported)
        raised = type(error).__name__
        if raised != promised:
            yield f"{where}: {''.join(traceback.format_exception(error, limit=-3))}"
            return
    if promised and not raised:
        yield f"{where}: {promised} was promised, and nothing was raised"


def _console(block: Block, where: str, folder: Path) -> Iterator[str]:
    for command, code in _commands(block.text):
        # what watches over a process is one itself; all others run here, which takes a tenth of the time
        done = (_apart if "run" in command else _here)(command, folder)
        if done.returncode != code:
            yield f"{where}: metastore {shlex.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"


def _apart(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "metastore", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        env={**os.environ, **_TERMINAL, "PYTHONPATH": str(ROOT)},
        check=False,
    )


def _here(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with chdir(folder), redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, _TERMINAL):
        code = run_command(command)
    return subprocess.CompletedProcess(command, code, *[stream.buffer.getvalue().decode() for stream in (out, err)])


def _commands(text: str) -> Iterator[tuple[list[str], int]]:
    """Yield the words after ``metastore``, and the exit code that is promised."""
    lines = text.replace("\\\n", " ").splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if not line.startswith("$ metastore"):
            continue
        code = 1 if re.search(r"# exit 1\s*$", line) or below.startswith("metastore: ") else 0
        lexer = shlex.shlex(line[2:], posix=True, punctuation_chars="|<>&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("|<>&"):
                break
            words.append(word)
        if not {"crawl", "loadtest", "console"} & set(words):
            yield words[1:], code
