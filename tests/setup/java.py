"""Find a Java that Spark 4 runs on, or install one: ``python tests/setup/java.py OUTPUT``.

Looks at JAVA_HOME, the ``java`` on PATH, and /usr/lib/jvm; takes 17 to 21 before anything newer,
and only one that has the module ``jdk.incubator.vector``. Where there is none, root on Debian gets
one with apt-get; others get one line that says how. The folder found is written to the file
OUTPUT (make exports it as JAVA_HOME); nothing else on the machine is changed.

Stands alone (standard library only): it runs before the packages are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["find_java"]

OLDEST, NEWEST_TRIED = 17, 21
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
VERSION = re.compile(r'version "(\d+)')


def find_java() -> Path | None:
    """Return the home of the most suitable Java on this machine, or None."""
    usable = [(version, home) for home in candidates() if (version := version_of(home)) and version >= OLDEST]
    usable.sort(key=lambda found: found[0] > NEWEST_TRIED)  # stable: otherwise in the order of candidates()
    return usable[0][1] if usable else None


def candidates() -> Iterator[Path]:
    """Give the folders to look at, the user's own choice first, each once."""
    named = os.environ.get("JAVA_HOME")
    command = shutil.which("java")
    homes = [Path(named)] if named else []
    homes += [Path(command).resolve().parents[1]] if command else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    return iter(dict.fromkeys(home.resolve() for home in homes))


def version_of(home: Path) -> int | None:
    """Ask the Java in ``home`` for its version; None when there is none, or it lacks what Spark asks for."""
    command = [str(home / "bin" / "java"), "--add-modules", "jdk.incubator.vector", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    found = VERSION.search(done.stderr)
    return int(found[1]) if found else None


def install() -> None:
    """Install Java where we may: as root, on Debian or Ubuntu."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    print("Spark needs Java 17 or later: installing it with apt-get", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], *(["install", "-y", "--no-install-recommends", package] for package in PACKAGES)):
        done = subprocess.run([apt, "-q", *words], env=environment, stdout=sys.stderr, check=False)
        if words[0] == "install" and done.returncode == 0:
            return


def main(output: Path) -> int:
    """Find or install Java and write its home to ``output``; 1 when there is none."""
    home = find_java()
    if home is None:
        install()
        home = find_java()
    if home is None:
        message = f"Spark needs Java {OLDEST} or later: install {PACKAGES[0]} (or set JAVA_HOME to one), then run again"
        print(message, file=sys.stderr)
        output.unlink(missing_ok=True)
        return 1
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f"{home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
