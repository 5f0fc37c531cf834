"""What pyproject.toml cannot say: the description that package indexes show, and links in the source archive."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

LINKS = ("retry", "migrations")
LINK = re.compile(r"(!?)\[([^]]+)\]\((?!https?:|#)([^)]+)\)")


def description(readme: str, documentation: str | None) -> str:
    """Return the README with links that work outside of the repository.

    They lead below the address that ``[project.urls]`` names ``Documentation``. Without one there is nothing to lead
    to: their text stays, and pictures are left out.
    """
    if documentation is not None:
        return LINK.sub(rf"\1[\2]({documentation.rstrip('/')}/\3)", readme)
    return LINK.sub(lambda link: "" if link[1] else link[2], readme)


class SourceArchive(sdist):
    """Keep the two symbolic links of metastore/, which setuptools would follow or leave out."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        places = {Path("metastore", name) for name in LINKS}
        kept = [file for file in files if places.isdisjoint(Path(file).parents)]
        super().make_release_tree(base_dir, kept)
        for place in places:
            Path(base_dir, place).symlink_to(Path("..", place.name))


here = Path(__file__).parent
urls = tomllib.loads((here / "pyproject.toml").read_text())["project"].get("urls", {})
setup(
    cmdclass={"sdist": SourceArchive},
    long_description=description((here / "README.md").read_text(), urls.get("Documentation")),
    long_description_content_type="text/markdown",
)
