"""A standalone Spark on this machine: a master and its workers, each a process of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.process import LAUNCHER, Background

__all__ = ["SparkCluster"]

CLASSES = "org.apache.spark.deploy"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class _Part(Background):
    """A program of Spark's, as ourselves: what it starts is to read and write what we do."""

    patience = 90.0  # a JVM on a busy machine
    words: Sequence[str | Path] = ()
    says = ""

    def __init__(self, java: Path) -> None:
        super().__init__()
        self._java = java

    def command(self) -> Sequence[str | Path]:
        import pyspark

        env = shutil.which("env") or "/usr/bin/env"
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        java = (f"JAVA_HOME={self._java}", "SPARK_DAEMON_MEMORY=256m", f"SPARK_DAEMON_JAVA_OPTS={_QUICK}")
        return [env, *java, "SPARK_LOCAL_IP=127.0.0.1", program, *self.words, *here]

    def ready(self, pid: int) -> bool:
        return self.says in self.log.read_text(errors="replace")

    def _launch(self, command: Sequence[str | Path]) -> list[str]:
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(self.ending))]
        return [*launcher, "-", *map(str, command)]


class _Master(_Part):
    name = "spark-master"
    says = "New state: ALIVE"

    def command(self) -> Sequence[str | Path]:
        self.words = (f"{CLASSES}.master.Master", "--port", str(self.port))
        return super().command()


class _Worker(_Part):
    name = "spark-worker"
    says = "Successfully registered with master"

    def __init__(self, java: Path, master: str, cores: int) -> None:
        super().__init__(java)
        memory = ("--cores", str(cores), "--memory", "1g", "--work-dir", self.folder / "work")
        self.words = (f"{CLASSES}.worker.Worker", *memory, master)


class SparkCluster:
    """``with SparkCluster(java) as cluster:`` runs a master at ``cluster.url``, and two workers with two cores each."""

    def __init__(self, java: Path, *, workers: int = 2, cores: int = 2) -> None:
        self._java, self._workers, self._cores = java, workers, cores
        self._parts: list[Background] = []
        self.url = ""

    def pids(self) -> list[int]:
        """The processes of the workers."""
        return [part.pid for part in self._parts[1:]]

    def __enter__(self) -> Self:
        try:
            master = _Master(self._java)
            self._parts.append(master)
            master.start()
            self.url = f"spark://127.0.0.1:{master.port}"
            for _ in range(self._workers):
                worker = _Worker(self._java, self.url, self._cores)
                self._parts.append(worker)
                worker.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in reversed(self._parts):
            part.stop()
