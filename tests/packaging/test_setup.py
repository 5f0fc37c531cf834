"""What sets a machine up: the locked versions, the Makefile that installs them, and what CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared() -> list[Requirement]:
    table = pyproject()
    project, groups = table["project"], table["dependency-groups"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), *groups.values()]
    return [Requirement(text) for texts in lists for text in texts]


def words_of(variable: str) -> list[str]:
    """Return what a variable of the Makefile lists."""
    (found,) = re.findall(rf"^{variable} := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return re.split("[, ]", found)


def locked() -> dict[str, list[tuple[str, Marker | None]]]:
    """The versions of each package in constraints.txt, with what each is for."""
    found: dict[str, list[tuple[str, Marker | None]]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            one = Requirement(line)
            (version,) = one.specifier
            assert version.operator == "==", line
            found.setdefault(one.name, []).append((version.version, one.marker))
    return found


def test_each_declared_package_has_a_lower_bound_and_a_locked_version() -> None:
    """After a bound is raised or a package added, ``make lock`` has run."""
    versions = locked()
    for one in declared():
        assert any(bound.operator == ">=" for bound in one.specifier), f"{one} has no lower bound"
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        assert name in versions, f"{one} is not in constraints.txt; run: make lock"
        for version, _ in versions[name]:
            assert one.specifier.contains(version), f"constraints.txt has {name} {version}, not {one}; run: make lock"


def test_one_package_has_one_bound() -> None:
    bounds: dict[str, set[str]] = {}
    for one in declared():
        bounds.setdefault(one.name, set()).add(str(one.specifier))
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


def test_the_tests_have_what_the_product_can_use() -> None:
    """But the clients of servers that few machines have: their tests skip without. The SDK brings its own API."""
    table = pyproject()
    extras, groups = table["project"]["optional-dependencies"], table["dependency-groups"]
    lists = [*(extras[name] for name in words_of("EXTRAS")), *(groups[name] for name in words_of("GROUPS"))]
    there = {Requirement(text).name for texts in lists for text in texts}
    wanted = {Requirement(text).name for name in extras.keys() - {"mysql", "opentelemetry"} for text in extras[name]}
    assert wanted - there == set()


def test_the_package_publishes_no_extra_that_only_a_clone_needs() -> None:
    table = pyproject()
    groups = table["dependency-groups"].keys()
    assert not groups & table["project"]["optional-dependencies"].keys()
    assert set(words_of("LOCKED")) - {"$(GROUPS)"} | set(words_of("GROUPS")) == groups  # `make lock` knows each


def test_messages_name_our_package_and_an_extra_that_it_has() -> None:
    project = pyproject()["project"]
    sources = [*(ROOT / "metastore").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = [word for page in sources for word in re.findall(r"pip install '?([\w-]+)\[([\w,-]+)\]", page.read_text())]
    assert {name for name, _ in named} == {project["name"]}
    assert {extra for _, extras in named for extra in extras.split(",")} <= set(project["optional-dependencies"])


def test_the_readme_names_each_extra() -> None:
    named = re.findall(r"`\[([\w-]+)\]`", (ROOT / "README.md").read_text())
    assert sorted(named) == sorted(pyproject()["project"]["optional-dependencies"])


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0", "3.14.0"])
def test_one_version_is_locked_for_each_python(python: str) -> None:
    """On Linux. What comes twice has markers that exclude each other."""
    where = {"python_full_version": python, "python_version": python[:4], "sys_platform": "linux", "os_name": "posix"}
    for name, versions in locked().items():
        meant = [version for version, marker in versions if marker is None or marker.evaluate(where)]
        assert len(meant) <= 1, name


def test_the_lock_names_no_place_to_install_from() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text, re.MULTILINE)  # an option such as --index-url


@pytest.mark.parametrize("uv", ["", "/opt/some/uv"])
def test_make_installs_what_is_locked(uv: str) -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", f"UV={uv}", "setup"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if "pip install" in line]
    # for what is installed, and for what builds it
    assert all(line.count("constraints.txt") == 2 for line in lines), lines
    assert all(("/opt/some/uv" in line) == bool(uv) for line in lines)
    # a machine's own pip may be older than groups
    assert ["--group" in line for line in lines] == ([True] if uv else [False, True])


MAKE = """#!/bin/sh
echo "make $*" >>"$CALLS"
echo "the closing line of $1"
case " $FAILS " in *" $1 "*) exit 2 ;; esac
"""


@pytest.mark.parametrize("fails", ["", "check", "test-long", "test", "check test"])
def test_continuous_integration_checks_and_tests(fails: str, tmp_path: Path) -> None:
    """All run, and the tests' closing line is the last one. A failure in the share of long tests is told."""
    fake, calls = tmp_path / "make", tmp_path / "calls"
    fake.write_text(MAKE)
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "FAILS": fails}
    done = subprocess.run([str(ROOT / ".ci" / "run")], env=env, capture_output=True, text=True, check=False)
    first, second, third = calls.read_text().splitlines()
    assert (first, third) == ("make check", "make test ARGS=--whole")
    assert re.fullmatch("make test-long ARGS=--share [0-9]/10", second)
    assert done.stdout.splitlines()[-1] == "the closing line of test"
    assert done.returncode == (2 if fails not in ("", "test-long") else 0)
    assert ("of the long tests failed" in done.stderr) == (fails == "test-long")
