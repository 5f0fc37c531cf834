"""The table of commands names what the modules register."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest
import typer
from typer.main import get_group

from metastore import cli
from metastore.cli.commands import MODULES, Commands


def test_all_modules_with_commands_are_in_the_table() -> None:
    modules = {found.name for found in pkgutil.iter_modules(cli.__path__)}
    assert set(MODULES) == {name for name in modules if hasattr(import_module(f"metastore.cli.{name}"), "register")}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_registers_the_commands_of_the_table(module: str) -> None:
    app = typer.Typer()
    import_module(f"metastore.cli.{module}").register(app)
    assert tuple(get_group(app).commands) == MODULES[module]


def test_a_command_is_built_when_it_is_used() -> None:
    commands = Commands()
    assert commands["show"].name == "show"
    assert [name for name, built in commands.data.items() if not isinstance(built, str)] == list(MODULES["show"])
    assert commands.get("no-such-command") is None
    assert [command.name for command in commands.values()] == list(commands)
