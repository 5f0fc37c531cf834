"""What is declared, what is in the tree, and what a wheel installs are the same."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tenacity

from metastore.backends.sql.tables import metadata
from metastore.port.restore import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
LINKS = ("retry", "migrations")

LEASES = (
    "cache_member",
    "cache_announcement",
    "lease",
    "lease_waiter",
    "staged",
    "pin",
    "consumer",
    "ticket",
    "secret_key",
)


def setuptools_table() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["tool"]["setuptools"]
        return table


def packages_in_the_tree() -> set[str]:
    """Every folder with a Python file in it, under its import name."""
    found = set()
    for top, name in (("metastore", "metastore"), *((link, f"metastore.{link}") for link in LINKS)):
        for file in (ROOT / top).rglob("*.py"):  # does not follow links
            below = file.parent.relative_to(ROOT / top).parts
            found.add(".".join((name, *below)))
    return found


def test_declared_packages_are_those_of_the_tree() -> None:
    declared = setuptools_table()["packages"]
    assert set(declared) == packages_in_the_tree()
    assert len(declared) == len(set(declared))


def test_every_package_has_an_init() -> None:
    for package in setuptools_table()["packages"]:
        assert (ROOT / Path(*package.split(".")) / "__init__.py").is_file(), package


@pytest.mark.parametrize("name", LINKS)
def test_links_lead_to_the_top_level_folders(name: str) -> None:
    link = ROOT / "metastore" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert setuptools_table()["package-dir"][f"metastore.{name}"] == name


def test_type_marker_is_there() -> None:
    assert (ROOT / "metastore" / "py.typed").is_file()


def test_import_brings_none_of_the_large_packages() -> None:
    script = "import sys, metastore.cli; print(*sorted({'obstore', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_import_waits_with_the_databases_drivers() -> None:
    """SQLAlchemy takes longer to import than all of ours; it is not needed before a store is opened."""
    script = "import sys, metastore; print(*sorted({'sqlalchemy', 'psycopg', 'alembic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_columns_of_a_restore_are_those_of_the_tables() -> None:
    """All but leases, pins, consumers and members of a cache, which belong to programs that run, and data keys.

    An export holds no ciphertext, so that a restored database has no use for data keys.
    """
    declared = {
        name: tuple([column for column in table.columns.keys() if column not in ("generation", "writer")])  # noqa: SIM118
        for name, table in metadata.tables.items()
    }
    assert {name: declared[name] for name in declared if name not in LEASES} == dict(COLUMNS)
    assert set(LEASES) <= set(declared)


@pytest.mark.slow
def test_wheel_holds_the_package_and_no_top_level_retry(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    subprocess.run([*command, str(copy_of_the_tree(tmp_path / "source"))], capture_output=True, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"metastore"}
    assert "metastore/py.typed" in names
    console = ROOT / "metastore/serve/console"
    pages = {str(file.relative_to(ROOT)) for part in ("templates", "static") for file in (console / part).iterdir()}
    assert len(pages) > 20
    assert pages <= set(names)
    revisions = {f"metastore/migrations/versions/{file.name}" for file in (ROOT / "migrations/versions").glob("*.py")}
    assert revisions | {"metastore/migrations/env.py", "metastore/migrations/script.py.mako"} <= set(names)
    for package in setuptools_table()["packages"]:
        assert f"{package.replace('.', '/')}/__init__.py" in names


def test_an_editable_install_is_found_beside_a_clone_called_metastore(tmp_path: Path) -> None:
    """A script's own folder comes first on the path, and a clone there looks like a package without a file."""
    clone = copy_of_the_tree(tmp_path / "metastore")
    build = f"import setuptools.build_meta as b; b.build_editable({str(tmp_path / 'dist')!r})"
    (tmp_path / "dist").mkdir()
    subprocess.run([sys.executable, "-c", build], cwd=clone, capture_output=True, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    script = tmp_path / "script.py"
    libraries = Path(tenacity.__file__).parents[1]  # as a path: what is installed there for editing does not count
    installed = (
        f"import site, sys; site.addsitedir({str(tmp_path / 'installed')!r}); sys.path.append({str(libraries)!r})"
    )
    script.write_text(f"{installed}\nimport metastore, metastore.clock\nprint(metastore.__file__)\n")
    done = subprocess.run([sys.executable, "-S", str(script)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(clone / "metastore" / "__init__.py"), done.stderr


def copy_of_the_tree(target: Path) -> Path:
    """Copy what a build needs, so that it leaves nothing in the checkout."""
    target.mkdir()
    files = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "metastore", "retry", "migrations")
    subprocess.run(["cp", "-a", *files, str(target)], cwd=ROOT, check=True)
    return target
