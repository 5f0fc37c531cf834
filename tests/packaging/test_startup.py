"""What a start costs is counted in modules: times would depend on the machine."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import metastore as ms
from metastore.homes import HOMES

SLOW = {"alembic", "asyncio", "matplotlib", "obstore", "pandas", "psycopg", "pyarrow", "pyspark", "sqlalchemy"}
SMALL = ("metastore", "metastore.homes", "metastore.version")


USED = {
    "app",
    "commands",
    "settings",
    "context",
    "output",
    "show",
    "past",
    "times",
    "unregistered",
}
"""The modules of the command line that ``ls`` needs."""


def imported(script: str) -> list[str]:
    """Return the modules that a fresh interpreter has after a script which prints nothing on stderr."""
    show = "import sys; print(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{script}\n{show}"], capture_output=True, text=True, check=True)
    return done.stderr.split()


def ours(modules: list[str]) -> list[str]:
    return [name for name in modules if name.partition(".")[0] == "metastore"]


def command(*words: str) -> str:
    return f"from metastore.cli.app import run; assert run({list(words)!r}) == 0"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"sqlite:///{tmp_path_factory.mktemp('startup') / 'a.db'}"
    ms.migrate(made)
    return made


def test_the_import_brings_no_module_that_is_not_used() -> None:
    modules = imported("import metastore")
    assert tuple(sorted(ours(modules))) == SMALL
    assert not SLOW & set(modules)


def test_the_version_needs_no_store() -> None:
    modules = imported(command("--version"))
    assert len(ours(modules)) <= 15
    assert not SLOW & set(modules)


def test_a_command_brings_what_it_uses(url: str) -> None:
    modules = imported(command("--url", url, "ls"))
    assert not SLOW & set(modules)
    used = {name.removeprefix("metastore.cli.") for name in ours(modules) if name.startswith("metastore.cli.")}
    assert used == USED
    assert len(ours(modules)) <= 327


def test_a_store_on_postgresql_needs_no_sqlalchemy(postgres_url: str) -> None:
    environment = {**os.environ, "METASTORE_URL": postgres_url}
    script = "import sys, metastore as ms; ms.open().close(); print({'sqlalchemy', 'alembic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_all_public_names_are_found_where_type_checkers_find_them() -> None:
    """What runs, what mypy reads, and ``__all__`` are the same."""
    tree = ast.parse(Path(str(ms.__file__)).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    read = {
        alias.asname or alias.name: (f"{node.module}", alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*read, "__version__"} == set(ms.__all__) == {*HOMES, "__version__"}
    for name, (module, there) in read.items():
        assert getattr(ms, name) is getattr(sys.modules[module], there), name
        assert module == f"metastore.{HOMES[name]}"


def test_the_module_is_like_any_other() -> None:
    assert set(ms.__all__) <= set(dir(ms))
    assert pickle.loads(pickle.dumps(ms.Column)) is ms.Column
    everything: dict[str, object] = {}
    exec("from metastore import *", everything)
    assert set(ms.__all__) - {"__version__"} <= set(everything)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ms.no_such_name


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("http", "starlette", "http"), ("serve", "starlette", "serve"), ("crawl", "pyarrow", "spark")],
)
def test_a_module_whose_extra_is_not_installed_names_it(module: str, package: str, extra: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None\nimport metastore.{module}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()[-1]
    assert f"metastore.{module} needs {package}" in said
    assert f"pip install 'versioned-metastore[{extra}]'" in said
