"""A server that speaks the S3 protocol (moto), in a process of its own, which notes every request.

It serves one request at a time: moto checks conditions and acts without a lock, and so it is exact. It takes any
credentials, but the key of a session may do only what the session's policy allows (:mod:`tests.servers.policies`). It
keeps everything in memory: each test takes a bucket of its own. Into the bucket ``FORBIDDEN`` it lets nobody.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.listening import Listening

__all__ = ["FORBIDDEN", "KEY", "SECRET", "Request", "S3Server"]

PROGRAM = Path(__file__).with_name("s3_program.py")
FORBIDDEN = "forbidden"
KEY, SECRET = "AKIATESTTESTTESTTEST", "s3cr3t/of+the=tests"


@dataclass(frozen=True)
class Request:
    """One request: ``key`` is the access key id that signed it."""

    method: str
    path: str
    query: str
    range: str | None
    key: str | None
    form: dict[str, str]
    """What the token service is asked for."""


@dataclass
class Requests:
    """The requests of a block of code, once it has ended."""

    made: list[Request] = field(default_factory=list)


class S3Server(Listening):
    """moto's server."""

    name = "s3"

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead a client here."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def query(self) -> str:
        """What leads a client here in a URI."""
        return f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def filesystem(self) -> Any:
        """Return a file system to prepare buckets with."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=self.url,
            region="us-east-1",
            allow_bucket_creation=True,
        )

    @contextmanager
    def requests(self) -> Iterator[Requests]:
        """Note what is asked of the server meanwhile."""
        before, found = len(self._all()), Requests()
        yield found
        found.made = self._all()[before:]

    def _all(self) -> list[Request]:
        return [Request(*json.loads(line)) for line in self.log.read_text().splitlines() if line.startswith("[")]

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, PROGRAM, str(self.port)]

    def _launch(self, command: Sequence[str | Path]) -> list[str]:
        """Run as ourselves: this Python may be where no other user can reach it."""
        launch = super()._launch(command)
        launch[-1 - len(command)] = "-"  # the user
        return launch
