"""Find a Chromium that tests can open reports in, or install one: ``python tests/setup/browser.py``.

Looks at CHROMIUM, then on PATH. Where there is none, root on Debian gets one with apt-get; others get one line that
says how. Nothing fails without it: the tests that need it are skipped then.

Stands alone (standard library only): it runs before the packages are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["HINT", "find_chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
HINT = "no Chromium to open reports in: apt-get install chromium (or set CHROMIUM to the program)"


def find_chromium() -> Path | None:
    """Return the program, or None."""
    if named := os.environ.get("CHROMIUM"):
        return Path(named) if os.access(named, os.X_OK) else None
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return Path(found) if found else None


def install() -> None:
    """Install Chromium where we may: as root, on Debian."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    print("Reports are opened in Chromium: installing it with apt-get", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run([apt, "-q", *words], env=environment, stdout=sys.stderr, check=False)


def main() -> int:
    """Find or install Chromium; 1 when there is none."""
    if find_chromium() is None:
        install()
    if find_chromium() is None:
        print(HINT, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
