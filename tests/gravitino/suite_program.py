"""Run the integration tests of Gravitino's Python client against a server; the client's Python runs this.

Arguments: the folder that has Gravitino's ``clients/client-python/tests``, a folder for a copy, and the server's port.
It prints how many tests ran, and each that failed, as JSON. Tests that need a file system in a cloud, HDFS, OAuth or
Ray are left out. Those of Hive's catalog ask a container for an address alone: they get one.
"""

# mypy: ignore-errors
import json
import os
import shutil
import sys
import unittest
from pathlib import Path

_OTHERS = ("gvfs", "lance", "oauth2")


def main(source: str, folder: str, port: str) -> None:
    """Copy the tests, let them ask the port, and run them."""
    place = Path(folder, "tests")
    shutil.copytree(source, place)
    for file in place.rglob("*.py"):
        file.write_text(file.read_text().replace("localhost:8090", f"localhost:{port}"))
    home = Path(folder, "home")
    for name in ("conf/gravitino.conf", "bin/gravitino.sh"):  # it restarts the server, to configure what is fixed here
        made = home / name
        made.parent.mkdir(parents=True)
        made.write_text("#!/bin/sh\n")
        made.chmod(0o755)
    os.environ |= {"GRAVITINO_HOME": str(home), "START_EXTERNAL_GRAVITINO": "true"}
    os.chdir(folder)
    sys.path[0] = folder
    from tests.integration.containers import hdfs_container

    hdfs_container.HDFSContainer = _Container
    names = [
        f"tests.integration.{'auth.' if file.parent.name == 'auth' else ''}{file.stem}"
        for file in sorted(Path(place, "integration").rglob("test_*.py"))
        if not any(other in file.name for other in _OTHERS)
    ]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    with Path(folder, "log.txt").open("w") as log:
        done = unittest.TextTestRunner(stream=log).run(suite)
    failed = {str(test): text for test, text in (*done.failures, *done.errors)}
    print(json.dumps({"ran": done.testsRun, "failed": failed}))


class _Container:
    """In place of the container with Hive."""

    def get_ip(self):
        """Return an address."""
        return "127.0.0.1"

    def close(self):
        """Do nothing."""


main(*sys.argv[1:])
