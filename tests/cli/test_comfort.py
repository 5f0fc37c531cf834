"""What makes the command line quick to use: completion, suggestions, and a long listing without a wait."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import metastore as ms
from metastore.cli import app as application
from tests.cli.test_cli import call, environment, here, refused

MANY = 20_000


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("metastore fi", {"find"}),
        ("metastore lease a", {"audit"}),
        ("metastore ls --rec", {"--recursive"}),
        ("metastore --pr", {"--principal"}),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    words = {"_METASTORE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = call(None, env=environment(**words))
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == offered


def test_the_script_of_the_completion_is_shown() -> None:
    """For the shell that the command was typed in."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    typed = ["bash", "-c", f"{shlex.quote(sys.executable)} -m metastore --show-completion; exit $?"]
    done = subprocess.run(typed, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    assert "_METASTORE_COMPLETE" in done.stdout


def test_a_word_that_is_nearly_right_is_suggested(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.sales", type="relational")
    refused(here(sqlite_url, "hstory", "lake"), "Did you mean 'history'")
    refused(here(sqlite_url, "ls", "--recursiv"), "--recursive")
    refused(here(sqlite_url, "show", "lake.salse"), "did you mean lake.sales?")


def test_a_schema_of_20000_tables_is_listed_in_less_than_two_seconds(sqlite_url: str) -> None:
    """Seconds of the processor: what others do on the machine does not count."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create_many(store.schemas.create("lake.c.s"), ({"name": f"t{n}"} for n in range(MANY)))
    began = time.process_time()
    done = here(sqlite_url, "ls", "lake.c.s")
    assert time.process_time() - began < 2.0
    assert done.stdout.count("\n") == 1 + MANY


def test_what_is_said_otherwise_at_a_shell_is_said_at_all() -> None:
    """A message that is worded in another way would tell somebody at a shell to call a method."""
    files = [path for path in Path(ms.__file__).parent.rglob("*.py") if path.name != "app.py"]
    text = "".join(path.read_text() for path in files)
    assert [call for call, _ in application._IN_THE_SHELL if call not in text] == []
