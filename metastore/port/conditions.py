"""The preconditions of a commit: its scopes, its reads, its leases, its caller."""

from __future__ import annotations

from metastore.port.value import value

ROOT_ID = 0
"""The id of the root's guard row; the root is the parent of all metalakes."""

LIVE, DROPPED, PURGING, DROPPING = 0, 1, 2, 3
"""The states of a guard row. An entity in the state *purging* cannot be restored, and gc deletes it.

An entity in the state *dropping* is being dropped in steps: it is not live, and no path leads to it, but it keeps its
name, and its parent is not empty. It becomes live again, or purging.
"""


@value
class Guard:
    """A precondition: the scope version of ``id`` is ``scope_version``, and stays so until this has committed.

    It is shared, unless ``exclusive``. An exclusive guard waits for all sharers and makes new ones wait, so absent
    names and listings that are checked under it cannot change before the commit. It does not bump the scope version: a
    commit that waited for it may continue.
    """

    id: int
    scope_version: int
    exclusive: bool = False
    bump: bool = False
    """The commit raises the scope version, so that decisions about rights that rest on the old one become invalid.

    Only with ``exclusive``.
    """


@value
class Expect:
    """A validated read: the version of the entity (or owned row) ``id`` is still ``version``."""

    id: int
    version: int
    owned: bool = False


@value
class Absent:
    """No live entity has this name. It needs an exclusive guard on the parent.

    With ``owned``: the parent has no owned row of the kind ``family`` with this name.
    """

    parent_id: int
    family: str
    key: str
    owned: bool = False


@value
class Listing:
    """The children of ``parent_id`` of ``kind``, in this state, are these (id, version) and no others.

    It needs an exclusive guard on the parent. With ``owned`` they are its owned rows.
    """

    parent_id: int
    kind: str
    members: frozenset[tuple[int, int]]
    owned: bool = False
    state: int = LIVE


@value
class Children:
    """Whether ``parent_id`` has a live child of any kind, other than the excepted ones.

    It needs an exclusive guard on the parent.
    """

    parent_id: int
    besides: frozenset[int]
    there: bool


@value
class Newest:
    """``id`` is the newest entity that was dropped under this name and can be restored; None: there is none.

    It needs an exclusive guard on the parent.
    """

    parent_id: int
    kind: str
    family: str
    key: str
    id: int | None


@value
class Relations:
    """The relations of ``kind`` at the entity ``id`` are these (id, version) and no others.

    These are the relations that go from the entity; with ``slot``, only those in that slot; with ``incoming``, those
    that lead to it. It needs an exclusive guard on the entity.
    """

    id: int
    kind: str
    members: frozenset[tuple[int, int]]
    slot: int | None = None
    incoming: bool = False


Read = Expect | Absent | Listing | Children | Newest | Relations


@value
class LeaseToken:
    """The lease ``name`` has the token ``token``, and keeps it until this has committed.

    The check ignores the lease's time, because the token changes with each acquisition, release and break.
    ``incarnation`` is the holder's; ``id`` is the lease's id in the feed and the audit.
    """

    name: str
    id: int
    token: int
    incarnation: str


@value
class Caller:
    """An operation id from a caller: when the id was made (µs), and the fingerprint of the arguments.

    The commit refuses an id from the future, or one so old that gc may have forgotten it.
    """

    issued: int
    digest: str
