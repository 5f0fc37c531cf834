"""MinIO: an object store that enforces the policies of sessions. Few machines have it.

``go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c`` builds it in minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.servers.listening import program
from tests.servers.s3 import KEY, SECRET, S3Server

__all__ = ["Minio"]


class Minio(S3Server):
    """MinIO, with the keys of the other store as those of its root. It notes no requests."""

    name = "minio"
    patience = 60.0

    def command(self) -> Sequence[str | Path]:
        minio = program("minio", "which no Debian has; go install github.com/minio/minio")
        settings = [f"MINIO_ROOT_USER={KEY}", f"MINIO_ROOT_PASSWORD={SECRET}", "MINIO_BROWSER=off"]
        return ["/usr/bin/env", *settings, minio, "server", "--address", f"127.0.0.1:{self.port}", self.folder / "data"]
