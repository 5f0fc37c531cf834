"""``python docs/site/sources.py FOLDER``: the pages of the site, from docs/, README.md, CHANGELOG.md and the code.

docs/index.md says which page is in which part. The code gives a page for the store and each manager, one for the
errors, and one for the command line, so that they say what the version at hand does.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import typer

import metastore as ms
from metastore import errors
from metastore.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md"}
GENERATED = ("store", "managers", "errors", "commands")
PART = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
LINK = re.compile(r"\]\(((?:\.\./)?[\w./-]+\.md)(?=[)#])")


def main(folder: Path) -> None:
    """Make the folder again."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("site", "__pycache__"))
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text().replace("](docs/", "](")
        (folder / page).write_text(re.sub(r"\]\((README|CHANGELOG)\.md", lambda m: f"]({OUTSIDE[f'{m[1]}.md']}", text))
    for file in folder.glob("*.md"):
        text = file.read_text()
        for name, there in OUTSIDE.items():
            text = text.replace(f"](../{name}", f"]({there}")
        file.write_text(text)
    index = folder / "index.md"
    index.write_text(index.read_text() + "\n".join(trees(index.read_text())))
    reference = folder / "reference"
    reference.mkdir()
    with closing(ms.open("memory://")) as store:
        managers = {name: value for name, value in sorted(vars(store).items()) if not name.startswith("_")}
    (reference / "store.rst").write_text(class_page("The store", ms.Store) + ".. autofunction:: metastore.open\n")
    for name, manager in managers.items():
        (reference / f"{name}.rst").write_text(class_page(f"store.{name}", type(manager)) + lent(manager))
    (reference / "managers.rst").write_text(
        f"{heading('The managers')}.. toctree::\n\n" + "".join(f"   {name}\n" for name in managers)
    )
    (reference / "errors.rst").write_text("".join(error_lines()))
    (reference / "commands.md").write_text("".join(command_lines()))


def trees(index: str) -> Iterator[str]:
    """Yield the table of contents of each part: its links, in their order."""
    for part, text in PART.findall(index):
        pages = [link.removesuffix(".md") for link in LINK.findall(text)]
        pages += [f"reference/{name}" for name in GENERATED] if part == "Reference" else []
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(dict.fromkeys(pages)) + "\n```\n"


def heading(text: str, below: str = "=") -> str:
    """Return a heading of reStructuredText."""
    return f"{text}\n{below * len(text)}\n\n"


def class_page(title: str, about: type) -> str:
    """Return the page of a class: its methods, also those that it inherits from ours."""
    where = f"{about.__module__}.{about.__qualname__}"
    return (
        f"{heading(title)}.. autoclass:: {where}\n   :members:\n   :undoc-members:\n   :inherited-members: Generic\n\n"
    )


def lent(manager: object) -> str:
    """Return the methods that a manager has from another object, as tags and policies have those of relations."""
    methods = [method.__func__ for method in vars(manager).values() if inspect.ismethod(method)]
    named = [f"{one.__module__}.{one.__qualname__}" for one in methods if not one.__name__.startswith("_")]
    return "".join(f".. automethod:: {name}\n   :no-index:\n\n" for name in named)


def error_lines() -> Iterator[str]:
    """Yield the page of errors: what each means, and what services make of it."""
    yield heading("Errors")
    yield ".. automodule:: metastore.errors\n   :no-members:\n\n"
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, ms.MetastoreError):
            yield heading(error.__name__, "-")
            again = "not without a change" if error.retry_after is None else f"after {error.retry_after:g} s"
            yield f"Code ``{error.code}``, HTTP status {error.http_status}; the same call may succeed {again}.\n\n"
            yield f".. autoclass:: metastore.errors.{error.__name__}\n   :show-inheritance:\n\n"


def command_lines() -> Iterator[str]:
    """Yield the page of commands: each with the help that it shows."""
    yield "# Every command\n\nThe help of each command. [The command line](../cli.md) has examples.\n"
    yield from helps(typer.main.get_command(app), None, "metastore")


def helps(command: Any, parent: typer.Context | None, name: str) -> Iterator[str]:
    """Yield the help of a command, then that of the commands below it."""
    context = typer.Context(command, parent=parent, info_name=name, terminal_width=100)
    yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for below in sorted(getattr(command, "commands", {})):
        yield from helps(command.commands[below], context, below)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
