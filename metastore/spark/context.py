"""The Spark context of a crawl or a load test: the running one, else a new one that is stopped at the end.

A new one needs no environment variable: it looks for Java, the workers run this Python with this ``metastore``, and a
local master listens on 127.0.0.1 only. It serves no web page, and the output of the JVM goes to a file that is shown
only when Spark does not start. On a cluster (``spark://…``) ``metastore`` must be installed where the workers run. Only
the RDD interface is used, so that no SQL session is started.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from metastore.errors import BackendUnavailable
from metastore.spark.java import find_java

__all__ = ["spark_context", "workers_like_us"]

_LOG4J: Final = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_LINES: Final = 5
"""How many lines of the JVM's output an error shows."""
_TRIES: Final = 4
"""How often a local master runs a task before it gives up, as a cluster does."""
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds while Python does the work: it starts in two thirds of the time."""


@contextmanager
def spark_context(master: str, options: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkContext]:
    """Give the active context, or a new one on ``master`` with Spark's ``options``, which is stopped afterwards."""
    active = SparkContext._active_spark_context  # noqa: SLF001 (there is no public way to ask)
    if active is not None:
        with workers_like_us(active):
            yield active
        return
    folder = Path(tempfile.mkdtemp(prefix="metastore-spark-"))
    try:
        context = _start(master, folder, options)
        try:
            with workers_like_us(context):
                yield context
        finally:
            _stop(context)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(master: str, folder: Path, options: Mapping[str, str]) -> SparkContext:
    logging.getLogger("py4j").addHandler(logging.NullHandler())  # py4j logs a Ctrl-C with a traceback
    log, settings = folder / "spark.log", folder / "log4j2.properties"
    settings.write_text(_LOG4J)
    conf = SparkConf(loadDefaults=False).setAll([*(_options(master, folder, settings) | dict(options)).items()])
    gateway = None
    with _environment(master), log.open("w") as stream:
        try:
            # a separate process group: a signal to our group (timeout(1) sends one) leaves Spark alive until we stop it
            gateway = launch_gateway(conf, popen_kwargs={"stderr": stream, "stdout": stream, "start_new_session": True})
            return SparkContext(conf=conf, gateway=gateway)
        except (PySparkException, Py4JError, OSError) as error:
            if gateway is not None:
                _end(gateway)
            raise BackendUnavailable(f"Spark does not start on {master}: {_last_words(log, error)}") from None


def _options(master: str, folder: Path, settings: Path) -> dict[str, str]:
    options = {
        "spark.master": _repeating(master),
        "spark.app.name": "metastore crawl",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{settings}",
    }
    if _is_local(master):
        options["spark.driver.extraJavaOptions"] += f" {_QUICK_START}"
        options |= {
            "spark.python.daemon.module": "metastore.crawl.worker_daemon",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
        }
    return options


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _repeating(master: str) -> str:
    """Return ``master``; a local one is set to rerun a task whose worker died, as any cluster does."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return f"local[{local[1] or 1},{_TRIES}]" if local else master


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """Set the environment variables that pyspark reads, while it starts."""
    changes = {"JAVA_HOME": find_java(), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if _is_local(master):
        changes |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def workers_like_us(context: SparkContext) -> Iterator[None]:
    """Make Python workers able to import this ``metastore``. With a local master they run this Python.

    It changes only what it must, because a changed environment makes Spark start new workers.
    """
    before = context.pythonExec, context.environment.get("PYTHONPATH")
    if _is_local(context.master):
        context.pythonExec = sys.executable
    here, paths = str(Path(__file__).resolve().parents[2]), (before[1] or "").split(os.pathsep)
    if here not in paths and not _is_installed():
        context.environment["PYTHONPATH"] = os.pathsep.join(path for path in (here, *paths) if path)
    try:
        yield
    finally:
        context.pythonExec = before[0]
        if before[1] is not None:
            context.environment["PYTHONPATH"] = before[1]
        else:
            context.environment.pop("PYTHONPATH", None)


def _is_installed() -> bool:
    """Whether every process of this Python can import ``metastore``, not only one that runs in this folder."""
    places = [*site.getsitepackages(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    editable = [finder for finder in sys.meta_path if getattr(finder, "__module__", "").startswith("__editable__")]
    return PathFinder.find_spec("metastore", places) is not None or any(
        finder.find_spec("metastore", None) is not None for finder in editable
    )


def _stop(context: SparkContext) -> None:
    """Stop the context and its JVM, so that the next context starts a new one."""
    gateway = context._gateway  # noqa: SLF001
    context.stop()
    _end(gateway)


def _end(gateway: Any) -> None:
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(timeout=30)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def _last_words(log: Path, error: Exception) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "ERROR" in line or "Exception" in line] or lines or [str(error)]
    return " | ".join(telling[:_LINES])
