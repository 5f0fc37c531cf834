"""Find a Java that Spark runs on: JAVA_HOME, the ``java`` on PATH, /usr/lib/jvm.

Spark needs Java 17 or later with the module ``jdk.incubator.vector``; 17 and 21 are its supported
versions, so they come before newer ones. The file ``release`` names the version: no process is started.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from metastore.errors import InvalidArgument

__all__ = ["find_java"]

_OLDEST: Final = 17
_MADE_FOR: Final = 21
_MODULE: Final = "jdk.incubator.vector"
_FOLDERS: Final = "/usr/lib/jvm"


def find_java(environment: Mapping[str, str] = os.environ, folders: str = _FOLDERS) -> str:
    """Return the home of a Java for Spark, or raise InvalidArgument that says how to get one."""
    usable = [(version, home) for home in _candidates(environment, folders) if (version := _version(home)) >= _OLDEST]
    if not usable:
        raise InvalidArgument(
            f"Spark needs Java {_OLDEST} or {_MADE_FOR} and there is none in JAVA_HOME, PATH or {folders}: "
            f"install openjdk-{_OLDEST}-jre-headless (apt-get, dnf, brew …), or set JAVA_HOME to one"
        )
    return str(min(usable, key=lambda version_and_home: version_and_home[0] > _MADE_FOR)[1])


def _candidates(environment: Mapping[str, str], folders: str) -> Iterator[Path]:
    """Yield the homes to look at, the user's own choice first, each once."""
    named = environment.get("JAVA_HOME")
    command = shutil.which("java", path=environment.get("PATH", ""))
    homes = [Path(named)] if named else []
    homes += [Path(command).resolve().parents[1]] if command else []
    homes += sorted(Path(folders).glob("*"))
    return iter(dict.fromkeys(home.resolve() for home in homes))


def _version(home: Path) -> int:
    """Return the major version of the Java in ``home``; the caller rejects versions that are too old for Spark.

    Return 0 if there is no Java, if its release file has no version, or if it lacks the module that Spark needs. Return
    `_OLDEST` if it has no release file.
    """
    if not (home / "bin" / "java").is_file():
        return 0
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return _OLDEST  # the version is unknown: try this Java
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    if version is None or (modules is not None and _MODULE not in modules[1].split()):
        return 0
    return int(version[1])
