"""Faults of rights: what decides, is guarded, and takes a right away; and of what a tag or a policy allows."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_GOVERNANCE"]

_RIGHTS = "metastore/governance"
_CHECKED = "metastore/operation/authorized.py"
_BUMPS = "metastore/operation/raising.py"
_OWNED = "metastore/backends/postgres/create_owned.py"
_REVOKED = "tests/contract/test_revoked_contract.py"
_USER = "tests/contract/test_as_user_contract.py"
_RELATIONS = "tests/contract/test_relations_contract.py"
_COMMIT = "tests/contract/test_commit_contract.py"
_READS = "tests/governance/test_read_after_revoked.py"
_FEED = "tests/governance/test_feed_of_a_user.py"
_HIDDEN = "tests/governance/test_reads_of_the_hidden.py"
_ROWS = "tests/unit/test_create_owned.py"

_EVIDENCE = (
    Fault(
        "the evidence of a user's write is not guarded",
        _CHECKED,
        "guards = requiring(proposal.guards, rests.scopes.without([i for i, _ in exclusive]))",
        "guards = proposal.guards",
        _REVOKED,
    ),
    Fault(
        "a user with much sees no dropped child that it owns",
        "metastore/backends/sql/rights.py",
        """for state in ("= 0", "<> 0")""",
        """for state in ("= 0", "= 3")""",
        "tests/governance/test_two_ways.py",
    ),
    Fault(
        "what a user with much owns among few children is not read",
        "metastore/backends/sql/rights.py",
        "{child.format('w.owns = 1', owner_of)}",
        "{child.format('w.owns = 0', owner_of)}",
        "tests/governance/test_two_ways.py",
    ),
    Fault(
        "of many roles that deny something, the one that is named depends on the others",
        f"{_RIGHTS}/evidence.py",
        "(grant.allow and grant.role < found[what].role)",
        "grant.role < found[what].role",
        "tests/governance/test_decision.py",
    ),
    Fault(
        "a grant of a role that a disabled group has decides",
        f"{_RIGHTS}/evidence.py",
        "if grant.role in self._anywhere.role_names:",
        "if grant.role:",
        "tests/governance/test_decision.py",
    ),
    Fault(
        "an error names the path that an object got while the call ran",
        _RIGHTS,
        "            raise _gone(want)\n        raise self.denied",
        "            raise EntityNotFound(known.facts.object.path)\n        raise self.denied",
        "tests/governance/test_errors_of_the_hidden.py",
    ),
    Fault(
        "who does not see a catalog is told that the key of its secrets is missing",
        "metastore/managers/secrets/sealing.py",
        "        hidden = session.access is not None and seal.catalog is not None\n",
        "        hidden = False\n",
        "tests/governance/test_secrets_of_the_hidden.py",
    ),
    Fault(
        "groups are not evidence",
        _RIGHTS,
        "members = [member.id for member in self.facts.members]",
        "members = [member.id for member in self.facts.members[:1]]",
        _REVOKED,
    ),
    Fault(
        "what is allowed is remembered for all operations",
        _RIGHTS,
        "what = (want.operation, want.kind)",
        'what = ("", "")',
        f"{_USER} -k memory",
    ),
    Fault(
        "PostgreSQL: a user's create without its guards",
        _OWNED,
        '{create.placed("%(id)s::bigint")}',
        '{create.placed("%(id)s::bigint").replace(create.ALL_GUARDED, "true")}',
        f"{_COMMIT} {_REVOKED} -k 'postgres and (owner or create)'",
    ),
    Fault(
        "PostgreSQL: a user's create notes no evidence",
        _OWNED,
        "d.last, %(note)s::text,",
        "d.last, NULL::text,",
        _ROWS,
    ),
    Fault(
        "PostgreSQL: the past shows an entity before its owner",
        _OWNED,
        "%(key)s::text, d.last, ",
        "%(key)s::text, d.seq, ",
        _ROWS,
    ),
)

_SHOWN = (
    Fault(
        "rows are shown by the id of an owner that the user does not see",
        f"{_RIGHTS}/seen.py",
        "        if self._access.may_guess(owners):\n",
        "        if True:\n",
        "tests/governance/test_fuzz_of_methods.py",
    ),
    Fault(
        "rows are read after the right to see them",
        f"{_RIGHTS}/seen.py",
        "        page = self._base.owned(owner_id, kind, after, limit, guards)\n"
        "        return page if owner_id == ROOT_ID or self._sees([owner_id]) else RowPage(False, [])",
        "        seen = owner_id == ROOT_ID or self._sees([owner_id])\n"
        "        return self._base.owned(owner_id, kind, after, limit, guards) if seen else RowPage(False, [])",
        _READS,
    ),
    Fault(
        "a listing trusts the choice that it read before its page",
        f"{_RIGHTS}/seen.py",
        "now = self._below(parent_id, kind, guards) if page.held else before",
        "now = before",
        _READS,
    ),
    Fault(
        "an export does not ask whether its right held at its instant",
        "metastore/transfer/export.py",
        "if rests and not _holds(snapshot, rests):",
        "if False:",
        _READS,
    ),
    Fault(
        "a user's view passes on whatever it does not know",
        f"{_RIGHTS}/seen.py",
        "        if name in PASSED:\n",
        "        if name not in REFUSED:\n",
        _READS,
    ),
)

_TOLD = (
    Fault(
        "a user's search looks below no container that is hidden",
        f"{_RIGHTS}/seen.py",
        "if one.kind in _CLOSED]",
        "if one.kind in (*_CLOSED, 'board')]",
        "tests/contract/test_user_calls_contract.py -k declared_container",
    ),
    Fault(
        "an outcome looks at the first of its entities alone",
        "metastore/store/views.py",
        "ends = {i for step in steps for i in seen_by(step)} | entities_in(found.result)",
        "ends = {i for step in steps[:1] for i in seen_by(step)}",
        _HIDDEN,
    ),
    Fault(
        "a metalake's user with the name of an admin is one",
        "metastore/store/store.py",
        "return who.name in self._admins and who.lake is None and who.ids is None",
        "return who.name in self._admins",
        _HIDDEN,
    ),
    Fault(
        "a user's follower stays before what is hidden",
        "metastore/feed/follow.py",
        "            after = one.position\n            yield None if isinstance(one, Passed) else one\n",
        "            after = after if isinstance(one, Passed) else one.position\n"
        "            yield None if isinstance(one, Passed) else one\n",
        _FEED,
    ),
    Fault(
        "a user's feed is filtered before it is tracked",
        "metastore/feed/visible.py",
        "        if self.below is not None:\n            self.below.see(steps)\n",
        "        steps = steps if self.access is None else seen_steps(self.access, steps)\n"
        "        if self.below is not None:\n            self.below.see(steps)\n",
        _FEED,
    ),
    Fault(
        "an attempt that trusts what is remembered looks again for ever",
        "metastore/managers/target.py",
        "    if guesses() is not None:\n        raise changed\n",
        "",
        f"{_HIDDEN} -k 'revocation_ends and alter'",
    ),
)

_TAKEN = (
    Fault(
        "a denial counts nothing up",
        _BUMPS,
        "if not allows and not write.removes:",
        "if False:",
        _REVOKED,
    ),
    Fault(
        "a revoke counts nothing up",
        _BUMPS,
        "if allows and write.removes:",
        "if False:",
        _REVOKED,
    ),
    Fault(
        "a new owner counts nothing up",
        _BUMPS,
        'if write.kind in (OWNER, "membership"):',
        'if write.kind == "membership":',
        _REVOKED,
    ),
    Fault(
        "a role that comes back counts nothing up",
        _BUMPS,
        '_DENYING = ("role", "group")',
        '_DENYING = ("group",)',
        _REVOKED,
    ),
    Fault(
        "verify finds no write that forgot to count up",
        "metastore/verify/taken.py",
        "if _may_take(row) and not _ids(row) <= done:",
        "if False:",
        _REVOKED,
    ),
)

_ALLOWED = (
    Fault(
        "a denial wins only if it is met first",
        _RIGHTS,
        "    for grant in mine:\n",
        "    for grant in mine[:1]:\n",
        "tests/governance/test_decision.py",
    ),
    Fault(
        "a restore elsewhere needs no right to create there",
        _CHECKED,
        "return node.name != place.name, parent.id != place.parent_id",
        "return node.name != place.name, False",
        f"{_USER} -k memory",
    ),
    Fault(
        "a user is renamed by its restore",
        _CHECKED,
        "return node.name != place.name, parent.id != place.parent_id",
        "return False, parent.id != place.parent_id",
        f"{_USER} -k memory",
    ),
    Fault(
        "a user's create in bulk owns what was there",
        _CHECKED,
        "if proposal.skip_existing and any(",
        "if False and any(",
        "tests/contract/test_kept_owners_contract.py",
    ),
    Fault(
        "a name is told before the right is asked",
        _CHECKED,
        "                _ask_first(access, request, view, error)\n",
        "                pass\n",
        f"{_USER} -k memory",
    ),
    Fault(
        "a repeat is of any user",
        "metastore/operation/record.py",
        "self._wrote(first, of_user) and own",
        "self._wrote(first, of_user)",
        f"{_USER} -k memory",
    ),
    Fault(
        "a user's job runs any command",
        "metastore/kinds/job/filled.py",
        'and job["command"] == filled(template, conf)',
        "",
        f"{_USER} -k memory",
    ),
    Fault(
        "a restore in its place needs the right to create",
        _CHECKED,
        "return node.name != place.name, parent.id != place.parent_id",
        "return node.name != place.name, True",
        f"{_USER} -k memory",
    ),
    Fault(
        "a tag with allowed values takes none",
        "metastore/managers/tags_and_policies.py",
        "if allowed and value not in allowed:",
        "if allowed and value and value not in allowed:",
        f"{_RELATIONS} -k memory",
    ),
    Fault(
        "an old tag in hand says what it allows",
        "metastore/managers/relations/manager.py",
        "fresh = wanted.column is not None or self._judge is not no_judge",
        "fresh = wanted.column is not None or wanted.value is not None",
        f"{_RELATIONS} -k memory",
    ),
)

IN_GOVERNANCE: tuple[Fault, ...] = (*_EVIDENCE, *_SHOWN, *_TOLD, *_TAKEN, *_ALLOWED)
