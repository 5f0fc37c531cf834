"""Open zip archives of one text file, such as ``cars.csv.zip``, or ``cars.zip`` with ``cars.csv`` in it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from metastore.crawl.files.formats import TYPED, Format, format_of, is_hidden
from metastore.crawl.files.open import InputFile
from metastore.crawl.files.places import base_name
from metastore.crawl.files.text import NotThisFormat

__all__ = ["member_format", "open_member"]

_MAC: Final = "__MACOSX/"
_ENCRYPTED: Final = 0x1
"""The bit of a member's flags that marks a password (ZIP specification, section 4.4.4)."""
_ADVICE: Final = "unpack it, because only an archive of one CSV or JSON file is read as it is"


@contextmanager
def open_member(file: InputFile) -> Iterator[IO[bytes]]:
    """Open the text of the one file in the archive."""
    with _archive(file) as archive, archive.open(_only(archive)) as stream:
        yield stream


def member_format(file: InputFile, said: Format) -> Format:
    """Return the format of the one file in the archive; ``said`` is the format that the archive's name implies."""
    with _archive(file) as archive:
        name = base_name(_only(archive).filename)
    inside = format_of(name)
    if inside is None or inside.compression or inside.name in TYPED:
        raise NotThisFormat(f"is a zip archive of {name!r}: {_ADVICE}")
    if said.name not in {"zip", inside.name}:
        raise NotThisFormat(f"is a zip archive of {name!r}, which is not the {said.name.upper()} that its name says")
    return inside


@contextmanager
def _archive(file: InputFile) -> Iterator[zipfile.ZipFile]:
    try:
        with file.open() as raw, zipfile.ZipFile(raw) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise NotThisFormat(f"is not a zip archive, or damaged: {error}") from None
    except NotImplementedError as error:
        raise NotThisFormat(f"is packed in a way that cannot be read ({error}): {_ADVICE}") from None


def _only(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    files = [member for member in archive.infolist() if not (member.is_dir() or _is_clutter(member.filename))]
    if len(files) != 1:
        raise NotThisFormat(f"is a zip archive of {len(files)} files: {_ADVICE}")
    if files[0].flag_bits & _ENCRYPTED:
        raise NotThisFormat("is a zip archive with a password: unpack it")
    return files[0]


def _is_clutter(name: str) -> bool:
    return name.startswith(_MAC) or is_hidden(base_name(name))
