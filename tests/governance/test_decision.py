"""The decision agrees with a plain model, says why, and rests on nothing that it does not name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metastore as ms
from metastore.governance.decision import Facts, Granted, Has, Level, Member, decide, sees
from metastore.governance.evidence import Who, evidence_at
from metastore.governance.privileges import check_privilege, needs_of
from metastore.port.records import Node
from metastore.port.rights import GrantRow, MembershipRow, RightRows, RoleRow
from tests.governance.model import may, may_see

CHAIN = (
    Level(1, "metalake", "m"),
    Level(2, "catalog", "m.c"),
    Level(3, "schema", "m.c.s"),
    Level(4, "schema", "m.c.s.n"),
    Level(5, "table", "m.c.s.n.t"),
)
USER, GROUP, OTHER = Member(10, "user", "ann"), Member(11, "group", "staff"), Member(12, "group", "away")
WORDS = ("use_catalog", "use_schema", "select_table", "modify_table", "create_table")
ROLES = (20, 21, 22)


def _facts(**changes: object) -> Facts:
    return replace(Facts("ann", CHAIN, (USER, GROUP), (Has(10, 20, "reader"), Has(11, 21, "staff"))), **changes)  # type: ignore[arg-type]


def _allowed(facts: Facts, *any_of: str) -> bool:
    return decide(facts, any_of)[-1].allowed


members = st.builds(
    lambda flags: tuple(m._replace(enabled=flag) for m, flag in zip((USER, GROUP, OTHER), flags, strict=True)),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
facts = st.builds(
    Facts,
    st.just("ann"),
    st.integers(1, len(CHAIN)).map(lambda n: CHAIN[:n]),
    st.one_of(st.just(()), members),
    st.lists(st.builds(Has, st.sampled_from((10, 11, 12, 13)), st.sampled_from(ROLES), st.just("r"))).map(tuple),
    st.dictionaries(st.sampled_from([p.id for p in CHAIN]), st.sampled_from((10, 11, 12, 13)), max_size=2),
    st.lists(
        st.builds(
            Granted,
            st.sampled_from(ROLES),
            st.sampled_from(WORDS),
            st.sampled_from((True, True, True, False)),
            st.sampled_from([p.id for p in CHAIN]),
        ),
        max_size=12,
    ).map(tuple),
)


@given(facts, st.lists(st.sampled_from(WORDS), max_size=2).map(tuple))
@settings(max_examples=400)
def test_it_agrees_with_the_model(known: Facts, any_of: tuple[str, ...]) -> None:
    for at in range(len(known.chain)):
        assert decide(known, any_of, at)[-1].allowed == may(known, any_of, at)
        assert sees(known, at)[-1].allowed == may_see(known, at)


@given(facts, st.sampled_from(WORDS))
@settings(max_examples=150)
def test_it_rests_on_the_roles_that_it_names(known: Facts, word: str) -> None:
    verdicts = decide(known, (word,))
    if verdicts[-1].allowed:
        named = frozenset().union(*[verdict.roles for verdict in verdicts])
        less = replace(known, grants=tuple(g for g in known.grants if g.role in named or not g.allow))
        assert decide(less, (word,))[-1].allowed
    else:
        assert verdicts[-1].missing is not None


def test_the_grants_that_decide() -> None:
    """Not one of a disabled group's role; of those that allow it the least role's, of those that deny it the first."""
    members = [MembershipRow(10, "user", "ann", 1, True), MembershipRow(11, "group", "away", 1, False)]
    roles = [RoleRow(11, 20, "r20", 1), RoleRow(10, 21, "r21", 1), RoleRow(10, 22, "r22", 1)]
    order = {"allow:use_catalog": (20, 22, 21), "deny:use_schema": (20, 22, 21)}
    grants = [GrantRow(role, value, 1) for value, some in order.items() for role in some]
    read = evidence_at(Who("ann"), (Node(1, "metalake", "m", 1, True, False),), RightRows(members, roles, [], grants))
    assert read.facts.grants == (Granted(21, "use_catalog", True, 1), Granted(22, "use_schema", False, 1))


@given(facts, st.sampled_from(WORDS))
@settings(max_examples=100)
def test_of_many_grants_at_a_place_those_that_decide_are_kept(known: Facts, word: str) -> None:
    """What was read says the same as all grants do: allowed or not, why, and on which roles it rests."""
    rows = RightRows(
        [MembershipRow(m.id, m.kind, m.name, 1, m.enabled) for m in known.members],
        [RoleRow(*has, 1) for has in known.roles],
        list(known.owners.items()),
        [GrantRow(g.role, f"{'allow' if g.allow else 'deny'}:{g.privilege}", g.on) for g in known.grants],
    )
    nodes = tuple([Node(at.id, at.kind, at.path.rpartition(".")[2], 1, True, False) for at in known.chain])
    read = evidence_at(Who("ann"), nodes, rows).facts
    in_order = replace(known, grants=tuple(sorted(known.grants, key=lambda grant: grant.on)))
    assert len({(grant.privilege, grant.allow, grant.on) for grant in read.grants}) == len(read.grants)
    assert sees(read) == sees(in_order)
    assert decide(read, (word,)) == decide(in_order, (word,))


def test_every_step_is_explained() -> None:
    grants = (Granted(20, "use_catalog", True, 1), Granted(21, "use_schema", True, 2))
    known = _facts(grants=(*grants, Granted(20, "select_table", True, 5)))
    assert [verdict.because for verdict in decide(known, ("select_table",))] == [
        "ann is a user of m",
        "the role reader allows use_catalog on m",
        "the role staff of the group staff allows use_schema on m.c",
        "the role staff of the group staff allows use_schema on m.c",
        "the role reader allows select_table on m.c.s.n.t",
    ]
    assert decide(known, ("modify_table",))[-1].because == "no role of ann allows modify_table on m.c.s.n.t"
    denied = replace(known, grants=(*known.grants, Granted(21, "select_table", False, 1)))
    assert decide(denied, ("select_table",))[-1].because == "the role staff of the group staff denies select_table on m"
    assert decide(denied, ("select_table",))[-1].missing == ("select_table", CHAIN[-1])


def test_an_owner_needs_nothing_where_it_owns_but_the_way_to_it() -> None:
    owns = _facts(owners={4: 11})
    assert not _allowed(owns, "modify_table")
    way = (Granted(20, "use_catalog", True, 2), Granted(20, "use_schema", True, 3))
    assert _allowed(replace(owns, grants=way), "modify_table")
    assert _allowed(replace(owns, grants=(*way, Granted(20, "modify_table", False, 5))), "modify_table")
    assert _allowed(_facts(owners={1: 10}), "modify_table")
    assert decide(_facts(owners={1: 11}), ())[-1].because == "the group staff of ann owns m"


def test_who_is_disabled_has_nothing() -> None:
    off = (USER._replace(enabled=False), GROUP)
    assert decide(_facts(owners={1: 10}, members=off), ())[-1].because == "the user ann is disabled in m"
    assert decide(_facts(owners={1: 10}, members=()), ())[-1].because == "m has no user ann"
    path = replace(_facts(members=()), user="m.ann")
    hint = "(a string is a bare name: give a path as a tuple of names)"
    assert decide(path, ())[-1].because == f"m has no user m.ann {hint}"
    assert not _allowed(_facts(owners={1: 11}, members=(USER, GROUP._replace(enabled=False))))


def test_words_are_checked() -> None:
    assert check_privilege("select_table", "schema") == "select_table"
    with pytest.raises(ms.InvalidArgument, match="no privilege 'fly'"):
        check_privilege("fly", "table")
    with pytest.raises(ms.InvalidArgument, match="not on a table"):
        check_privilege("create_catalog", "table")
    assert needs_of("dashboard").see == ("select_dashboard", "modify_dashboard")
