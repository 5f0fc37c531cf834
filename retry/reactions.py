"""The reactions to a conflict: one table from causes to reactions. docs/progress.md quotes the table.

The columns of the table are the kinds of commits that lose:

===========  ======================================================================================
change       an operation that can be announced: ``alter``, and a create that replaces
exclusive    rename, move, drop, restore, enable, disable, purge
other        every other operation, and a change under a lease or with an ``expected_version``
transaction  a transaction, a freeze's included
helper       the commit that applies pending intents
===========  ======================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Reaction(Enum):
    """The next action. All except RAISE lead to another attempt; only BACK_OFF first waits as the policy says."""

    ANNOUNCE = "announce"
    """Announce the operation as an intent, which other processes apply, too."""
    MARK = "mark"
    """Mark the scope, so that others step aside."""
    STEP_ASIDE = "step aside"
    """For another's mark, remove the own mark and back off; for the others' turn, wait until it ends."""
    LOOK = "look"
    """Read the operation's row, which shows its outcome."""
    HELP = "help"
    """Apply the pending intents first."""
    AT_ONCE = "at once"
    """Try again without a wait."""
    BACK_OFF = "back off"
    """Wait for a random time, and try again."""
    QUEUE = "queue"
    """Take a ticket, and wait in line."""
    RAISE = "raise"
    """Tell the caller: another attempt would find the same."""


@dataclass(frozen=True)
class Reactions:
    """The reactions to one cause, and more facts about the cause."""

    change: Reaction
    exclusive: Reaction
    other: Reaction
    transaction: Reaction
    helper: Reaction
    own_mark: bool = False
    """Whether a commit that requires its own mark also loses for this cause if the mark is gone: check that first."""
    nobody_won: bool = False
    """Whether no other operation has won. Then the retry takes a token, which protects a database in trouble."""


_R = Reaction
REACTIONS: Final[dict[str, Reactions]] = {
    # cause: change, exclusive, other, transaction, helper
    "ancestor": Reactions(_R.BACK_OFF, _R.BACK_OFF, _R.BACK_OFF, _R.RAISE, _R.AT_ONCE, own_mark=True),
    "self": Reactions(_R.ANNOUNCE, _R.MARK, _R.BACK_OFF, _R.RAISE, _R.AT_ONCE),
    "name": Reactions(_R.BACK_OFF, _R.BACK_OFF, _R.BACK_OFF, _R.RAISE, _R.AT_ONCE),
    "not_empty": Reactions(_R.BACK_OFF, _R.BACK_OFF, _R.BACK_OFF, _R.RAISE, _R.AT_ONCE),
    "read": Reactions(_R.ANNOUNCE, _R.BACK_OFF, _R.BACK_OFF, _R.RAISE, _R.AT_ONCE, own_mark=True),
    "serialization": Reactions(_R.BACK_OFF, _R.BACK_OFF, _R.BACK_OFF, _R.BACK_OFF, _R.AT_ONCE, nobody_won=True),
    "operation": Reactions(_R.LOOK, _R.LOOK, _R.LOOK, _R.RAISE, _R.AT_ONCE),
    "pending": Reactions(_R.ANNOUNCE, _R.HELP, _R.HELP, _R.AT_ONCE, _R.AT_ONCE),
    "marked": Reactions(_R.STEP_ASIDE, _R.STEP_ASIDE, _R.STEP_ASIDE, _R.STEP_ASIDE, _R.STEP_ASIDE),
    "busy": Reactions(_R.BACK_OFF, _R.MARK, _R.BACK_OFF, _R.BACK_OFF, _R.AT_ONCE),
    "stale_id": Reactions(_R.LOOK, _R.LOOK, _R.LOOK, _R.RAISE, _R.AT_ONCE),
    "claim": Reactions(_R.LOOK, _R.LOOK, _R.LOOK, _R.RAISE, _R.AT_ONCE),
    "lease": Reactions(_R.RAISE, _R.RAISE, _R.RAISE, _R.RAISE, _R.AT_ONCE),
    "ticket": Reactions(_R.ANNOUNCE, _R.QUEUE, _R.QUEUE, _R.RAISE, _R.AT_ONCE),
    # the database itself never returns these causes
    "lost": Reactions(_R.LOOK, _R.LOOK, _R.LOOK, _R.LOOK, _R.BACK_OFF, nobody_won=True),
    "unavailable": Reactions(_R.BACK_OFF, _R.BACK_OFF, _R.BACK_OFF, _R.RAISE, _R.BACK_OFF, nobody_won=True),
    "rejected": Reactions(_R.RAISE, _R.RAISE, _R.RAISE, _R.RAISE, _R.BACK_OFF),
}
"""The table. Most causes are in ``metastore.port.commit.Cause``; the database never returns the other three."""

NOBODY_WON: Final = frozenset(cause for cause, reactions in REACTIONS.items() if reactions.nobody_won)
