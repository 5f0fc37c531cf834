"""A bridge from a tree of read-write locks to the store: move one call after another, and go back at any time.

``tree_lock(path, "read" | "write")`` has the shape of Gravitino's ``TreeLockUtils.doWithTreeLock``. It takes a lock on
the last node of the path and read locks above it. Callers keep their code; the *stage* says what the call does:

- ``"lock"``: a lock tree in this process, as before. It guards nothing against other processes.
- ``"shadow"``: the same, and the bridge records for each call site how long it waited, and whether a compare-and-swap
  would have conflicted instead of waiting (:meth:`Bridge.report`).
- ``"bridged"``: a section for writing is exclusive among all processes, and its lease's fencing token is checked in
  the store's commits (``lease=section.lease``). A section for reading takes no lock: it is validated at its end.

After the last stage a call site drops the lock, and only calls the managers. docs/proposal.md goes through all stages.
"""

from metastore.bridge.bridge import Bridge, do_with_tree_lock, install, installed, tree_lock
from metastore.bridge.section import STAGES, Mode, Section, Stage
from metastore.bridge.shadow import Report, Site

__all__ = [
    "STAGES",
    "Bridge",
    "Mode",
    "Report",
    "Section",
    "Site",
    "Stage",
    "do_with_tree_lock",
    "install",
    "installed",
    "tree_lock",
]
