"""What ``make docs`` makes: the pages of all that a program can call, links that lead somewhere, no other server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

import metastore as ms
from metastore.cli.commands import MODULES
from tests.docs.examples import ROOT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("site")]
LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"')
IDS = re.compile(r'\sid="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(["make", "docs", f"SITE={folder}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_each_manager_error_and_command_has_its_place(site: Path) -> None:
    with ms.open("memory://") as store:
        managers = {name: value for name, value in vars(store).items() if not name.startswith("_")}
    for name, manager in managers.items():
        page = (site / "reference" / f"{name}.html").read_text()
        methods = [method for method in dir(manager) if not method.startswith("_")]
        assert [method for method in methods if f">{method}<" not in page] == [], name
    errors = (site / "reference/errors.html").read_text()
    assert all(f"metastore.errors.{one.__name__}" in errors for one in ms.MetastoreError.__subclasses__())
    commands = (site / "reference/commands.html").read_text()
    assert all(f"Usage: metastore {name}" in commands for names in MODULES.values() for name in names)


def test_each_link_leads_somewhere_and_nothing_is_fetched(site: Path) -> None:
    pages = {page: page.read_text() for page in site.rglob("*.html") if "_downloads" not in page.parts}
    assert len(pages) > 60
    ids = {page.resolve(): set(IDS.findall(text)) for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        assert not re.search(r'<(?:script|img)[^>]*src="(?:https?:)?//', text), page
        for link in LINK.findall(text):
            path, _, anchor = unquote(link.partition("?")[0]).partition("#")
            if "://" in link or link.startswith("data:"):
                continue
            target = (page.parent / path).resolve() if path else page.resolve()
            if not target.exists() or (anchor and target in ids and anchor not in ids[target]):
                broken.append((page.name, link))
    assert broken == []


def test_search_needs_no_server(site: Path) -> None:
    """The index is a script, which browsers load from a file too."""
    index = (site / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")
    assert all(word in index for word in ("tombston", "fenc", "leas"))


@pytest.mark.parametrize("link", ["other.md", "index.md#no-such-part", "#nowhere"])
def test_a_link_that_leads_nowhere_fails(link: str, site: Path, tmp_path: Path) -> None:
    """Negative control. The site is made first: it makes the environment."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/index.md").write_text(f"# A page\n\nIt has a [link]({link}).\n")
    shutil.copy(ROOT / "docs/site/conf.py", tmp_path)
    sphinx = str(ROOT / "build/docs/bin/sphinx-build")
    command = [sphinx, "-q", "-W", "-c", str(tmp_path), str(tmp_path / "pages"), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    assert "xref_missing" in done.stderr
