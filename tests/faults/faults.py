"""All planted faults."""

from __future__ import annotations

from tests.faults.fault import Fault
from tests.faults.in_backends import IN_BACKENDS
from tests.faults.in_batches import IN_BATCHES
from tests.faults.in_caches import IN_CACHES
from tests.faults.in_connections import IN_CONNECTIONS
from tests.faults.in_console import IN_CONSOLE
from tests.faults.in_defects import IN_DEFECTS
from tests.faults.in_edges import IN_EDGES
from tests.faults.in_governance import IN_GOVERNANCE
from tests.faults.in_imports import IN_IMPORTS
from tests.faults.in_joints import IN_JOINTS
from tests.faults.in_keys import IN_KEYS
from tests.faults.in_keys_of_clouds import IN_KEYS_OF_CLOUDS
from tests.faults.in_leases import IN_LEASES
from tests.faults.in_library import IN_LIBRARY
from tests.faults.in_lost import IN_LOST
from tests.faults.in_meetings import IN_MEETINGS
from tests.faults.in_reports import IN_REPORTS
from tests.faults.in_servers import IN_SERVERS
from tests.faults.in_sign_in import IN_SIGN_IN
from tests.faults.in_survivors import IN_SURVIVORS

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    *IN_BACKENDS,
    *IN_LIBRARY,
    *IN_GOVERNANCE,
    *IN_DEFECTS,
    *IN_BATCHES,
    *IN_CACHES,
    *IN_CONNECTIONS,
    *IN_CONSOLE,
    *IN_EDGES,
    *IN_JOINTS,
    *IN_IMPORTS,
    *IN_KEYS,
    *IN_KEYS_OF_CLOUDS,
    *IN_LEASES,
    *IN_LOST,
    *IN_MEETINGS,
    *IN_REPORTS,
    *IN_SERVERS,
    *IN_SIGN_IN,
    *IN_SURVIVORS,
)
