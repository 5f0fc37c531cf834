"""The scenarios of a load test, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from metastore.errors import InvalidArgument
from metastore.loadtest.scenarios.caught_errors import CaughtErrors
from metastore.loadtest.scenarios.commit_burst import CommitBurst
from metastore.loadtest.scenarios.drop_recreate import DropRecreate
from metastore.loadtest.scenarios.exclusive import Exclusive
from metastore.loadtest.scenarios.hot_table import HotTable
from metastore.loadtest.scenarios.mix import Mix
from metastore.loadtest.scenarios.rename_storm import RenameStorm
from metastore.loadtest.scenarios.scenario import Ended, Me, Scenario
from metastore.loadtest.scenarios.siblings import Siblings
from metastore.loadtest.scenarios.toml_file import read_scenario
from metastore.loadtest.scenarios.trace import Trace

__all__ = ["SCENARIOS", "Ended", "Me", "Mix", "Scenario", "scenario_named"]

SCENARIOS: Final[Mapping[str, type[Scenario]]] = {
    "hot-table": HotTable,
    "siblings": Siblings,
    "rename-storm": RenameStorm,
    "drop-recreate": DropRecreate,
    "commit-burst": CommitBurst,
    "exclusive": Exclusive,
    "caught-errors": CaughtErrors,
    "zipf": Mix,
    "trace": Trace,
}


def scenario_named(name: str, *, skew: float | None = None, trace: str | None = None) -> Scenario:
    """Return a scenario: by its name, or from a TOML file. Raises InvalidArgument."""
    scenario = _found(name)
    if skew is not None:
        if not isinstance(scenario, Mix):
            raise InvalidArgument(f"the scenario {name} has no skew; leave --skew out, or choose zipf")
        scenario = replace(scenario, skew=skew)
    if trace is not None:
        if not isinstance(scenario, Trace):
            raise InvalidArgument(f"the scenario {name} replays no trace; leave --trace out, or choose trace")
        scenario = replace(scenario, path=str(Path(trace).absolute()))
    scenario.check()
    return scenario


def _found(name: str) -> Scenario:
    if name in SCENARIOS:
        return SCENARIOS[name]()
    if name.endswith(".toml"):
        return read_scenario(Path(name))
    known = ", ".join(SCENARIOS)
    raise InvalidArgument(f"there is no scenario {name!r}; known are {known}, and any file whose name ends with .toml")
