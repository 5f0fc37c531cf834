"""``loadtest``: run many clients at once, check the answers that they got, and report."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from metastore.cli.context import Json
from metastore.cli.output import console, write, write_json
from metastore.cli.settings import Settings
from metastore.errors import InvalidArgument

if TYPE_CHECKING:
    from metastore.loadtest.job import LoadTest
    from metastore.loadtest.monitor import Progress

__all__ = ["register"]

Tell = Callable[["Progress"], None]


def loadtest(
    ctx: typer.Context,
    scenario: Annotated[str, typer.Option("--scenario", help="Its name, or a TOML file: see docs/loadtest.md.")],
    clients: Annotated[str, typer.Option("--clients", help="How many at once; 1,2,4,8: a ramp.")] = "8",
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="How long; by default, the scenario's time.", show_default=False)
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark cluster; else local[clients].", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="A new folder that driver and workers share. By default, one here.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The seed of the clients' random choices.")] = 0,
    skew: Annotated[
        float | None, typer.Option("--skew", help="For zipf: 0 is even, 0.99 is usual.", show_default=False)
    ] = None,
    trace: Annotated[str | None, typer.Option("--trace", help="For trace: the file.", show_default=False)] = None,
    metalake: Annotated[str, typer.Option("--metalake", help="The metalake that it creates.")] = "loadtest",
    json: Json = False,
) -> None:
    """Let many clients write at once, on Spark.

    It records and checks all calls, and writes a report. The exit code is 1 if answers contradict each other, or if
    the records of a client are missing.
    """
    from metastore.loadtest.job import run  # noqa: PLC0415  (only this command needs Spark)

    settings: Settings = ctx.obj
    with _ended_in_order(), _progress(console(stderr=True), quiet=json) as tell:
        done = run(
            settings.url,
            scenario,
            clients=_numbers(clients),
            seconds=seconds,
            master=master,
            out=out,
            seed=seed,
            skew=skew,
            trace=trace,
            metalake=metalake,
            progress=tell,
        )
    _write(done, json=json)
    if done.interrupted:
        raise KeyboardInterrupt
    if not done.clean:
        raise typer.Exit(1)


def _numbers(text: str) -> int | list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text.replace(" ", "")):
        raise InvalidArgument(f"--clients takes one number or several, such as 8 or 1,2,4,8; not {text!r}")
    counts = [int(part) for part in text.split(",")]
    return counts[0] if len(counts) == 1 else counts


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Make SIGTERM act like Ctrl-C: the clients end, and the command reports what they have done so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(out: Console, *, quiet: bool) -> Iterator[Tell]:
    """Show a progress bar, but only on a terminal."""
    if quiet or not out.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    with Bar(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None, done="")

        def tell(at: Progress) -> None:
            done = f"{at.operations:,} operations, {at.conflicts:,} conflicts" if at.operations else ""
            length = None if at.of is None else f"{min(at.seconds, at.of):.0f} of {at.of:g} s"
            what = at.what if length is None else f"{at.what}, {length}"
            bar.update(task, description=what, total=at.of, completed=at.seconds, done=done)

        yield tell


def _write(done: LoadTest, *, json: bool) -> None:
    from metastore.loadtest.report.conclusion import conclusion_of  # noqa: PLC0415
    from metastore.loadtest.report.png import HINT, has_matplotlib  # noqa: PLC0415
    from metastore.loadtest.report.summary import summary, terminal  # noqa: PLC0415

    out = console()
    if done.analysis is None:
        return
    verdict = conclusion_of(done.analysis, {run.folder: run.findings for run in done.runs})
    if json:
        write_json(summary(done.analysis, verdict) | {"out": str(done.folder), "interrupted": done.interrupted})
        return
    out.print(terminal(done.analysis, verdict))
    out.print()
    if done.interrupted:
        out.print("It was interrupted: the figures are those up to then.")
    write(out, f"Report: {done.report}")
    if not has_matplotlib():
        out.print(HINT)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(loadtest)
