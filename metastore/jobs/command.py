"""Turn a filled-in command into the words and the environment of a process, in a separate folder."""

from __future__ import annotations

import http.client
import os
import shutil
import urllib.request
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument

__all__ = ["Stopped", "environment", "words"]

_SILENT: Final = 10.0
"""How long the server of a file may be silent (seconds); a fetch may go on that long after its job was cancelled."""
_FETCHING: Final = 600.0
"""How long the fetch of a file may take (seconds)."""
_LARGEST: Final = 1 << 30
"""How large a file that is fetched may be (bytes)."""
_PART: Final = 1 << 18
_HANDED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "JAVA_HOME")
_FAMILIES: Final = ("LC_", "SPARK_", "HADOOP_", "PYSPARK_")


def environment(command: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a job: the server's variables that programs need, and the template's.

    The server's other variables stay with it: they may hold its secrets, such as METASTORE_URL.
    """
    own = {k: v for k, v in os.environ.items() if k in _HANDED_ON or k.startswith(_FAMILIES)}
    return own | dict(command.get("environments") or {})


class Stopped(Exception):
    """Raised when a job must end during the fetch of one of its files."""


def words(type: str, command: Mapping[str, Any], folder: Path, stop: Callable[[], object] = lambda: None) -> list[str]:
    """Return the words of a job's command. Files with file: or http: URLs are linked or fetched into ``folder``.

    Raises InvalidArgument for a file that cannot be fetched or found, OSError, and Stopped when ``stop`` returns a
    reason.
    """
    arguments = list(command.get("arguments") or ())
    if type == "spark":
        return [*_spark_submit(command), command["executable"], *arguments]
    executable = command["executable"]
    places = dict.fromkeys([*(command.get("scripts") or ()), executable])  # bring each place once
    brought = {place: _brought(place, folder, stop) for place in places}
    return [brought[executable], *arguments]


def _brought(place: str, folder: Path, stop: Callable[[], object]) -> str:
    """Return a path that can be run: ``place`` itself, or that of the linked or fetched file."""
    parts = urlsplit(place)
    if parts.scheme == "":
        if "/" in place and Path(place).exists():
            _linked(Path(place), folder)
        return place
    target = folder / (Path(unquote(parts.path)).name or "file")
    if parts.scheme == "file":
        _linked(Path(unquote(parts.path)), folder)
    elif parts.scheme in ("http", "https"):
        _check_free(target)
        try:
            with urllib.request.urlopen(place, timeout=_SILENT) as source, target.open("wb") as to:  # noqa: S310
                _copy(source, to, stop)
        except OSError as error:
            raise InvalidArgument(f"{target.name} could not be fetched from {parts.hostname}: {error}") from None
        target.chmod(0o700)
    else:
        raise InvalidArgument(f"a job's files are fetched from file:, http: or https:, not from {parts.scheme[:20]}:")
    return str(target)


def _copy(source: http.client.HTTPResponse, to: BinaryIO, stop: Callable[[], object]) -> None:
    """Copy a server's answer. Raises Stopped; OSError if the answer is too large, or takes too long."""
    ends, size = SYSTEM.monotonic() + _FETCHING, 0
    while part := source.read1(_PART):
        to.write(part)
        size += len(part)
        if stop() is not None:
            raise Stopped
        if size > _LARGEST or SYSTEM.monotonic() > ends:
            raise OSError(f"it has more than {_LARGEST} bytes, or takes more than {_FETCHING:g} s")


def _linked(source: Path, folder: Path) -> None:
    """Make a file visible in the job's folder, under its own name."""
    if not source.exists():
        raise InvalidArgument(f"this server has no file {source}")
    target = folder / source.name
    if not target.exists() or not target.samefile(source):
        _check_free(target)
        target.symlink_to(source.resolve())


def _check_free(target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidArgument(f"two files of the job are called {target.name}; rename one of them")


def _spark_submit(command: Mapping[str, Any]) -> list[str]:
    words = [_spark_submit_path()]
    if command.get("class_name"):
        words += ["--class", command["class_name"]]
    for part in ("jars", "files", "archives"):
        if command.get(part):
            words += [f"--{part}", ",".join(command[part])]
    for key, value in (command.get("configs") or {}).items():
        words += ["--conf", f"{key}={value}"]
    return words


def _spark_submit_path() -> str:
    """Return the path of spark-submit: from SPARK_HOME, from the PATH, or from the installed pyspark."""
    home = os.environ.get("SPARK_HOME")
    path = str(Path(home) / "bin" / "spark-submit") if home else shutil.which("spark-submit")
    if path is None and (spec := find_spec("pyspark")) is not None and spec.origin:
        path = str(Path(spec.origin).parent / "bin" / "spark-submit")
    if path is None or not Path(path).exists():
        raise InvalidArgument("this server has no spark-submit; set SPARK_HOME, or install pyspark")
    return path
