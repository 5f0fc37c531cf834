"""The races of docs/field-cases.md through Gravitino's Python client, on servers that share a database.

Gravitino's Python runs it:
``race_program.py TURNS ADDRESS ADDRESS …`` prints a JSON object: for each race, how often an outcome was wrong.
It imports nothing of this project, and takes any server of the API: what it counts is wrong on each of them.
"""

# mypy: ignore-errors
import json
import sys
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from gravitino import Catalog, GravitinoAdminClient, GravitinoClient, NameIdentifier
from gravitino.api.authorization.owner import Owner
from gravitino.api.authorization.privileges import Privileges
from gravitino.api.authorization.securable_objects import SecurableObjects
from gravitino.api.metadata_object import MetadataObject
from gravitino.api.metadata_objects import MetadataObjects
from gravitino.api.model_change import ModelChange
from gravitino.exceptions.base import AlreadyExistsException, GravitinoRuntimeException, NotFoundException
from gravitino.namespace import Namespace

LAKE, THREADS = f"races_{uuid.uuid4().hex}", 6


class Server:
    """One server's clients: they share connections to nothing, and each thread may use them."""

    def __init__(self, address):
        self.client = GravitinoClient(uri=address, metalake_name=LAKE)
        self.catalog = self.client.load_catalog("cat")
        self.models, self.schemas = self.catalog.as_model_catalog(), self.catalog.as_schemas()


class Races:
    """Each method is one turn of one race, and counts what is wrong after it."""

    def __init__(self, servers, threads):
        self.servers, self.threads, self.wrong = servers, threads, Counter()

    def at_once(self, *calls):
        """Run the calls at once, in turns on the servers; return for each what it raised, or its result."""
        start = threading.Barrier(len(calls))

        def one(number, call):
            start.wait()
            try:
                return call(self.servers[number % len(self.servers)])
            except Exception as error:  # noqa: BLE001  (whatever a client sees is an outcome)
                return error

        running = [self.threads.submit(one, number, call) for number, call in enumerate(calls)]
        found = [each.result() for each in running]
        for result in found:
            if type(result) in (RuntimeError, GravitinoRuntimeException, AssertionError):  # answers of status 500
                self.wrong["a request fails by a defect of the server"] += 1
        return found

    def count(self, race, wrong):
        self.wrong[race] += int(wrong)

    def model(self, name):
        ident = NameIdentifier.of("s", name)
        self.servers[0].models.register_model(ident, "", {})
        return ident

    def names(self, schema="s", at=0):
        return {one.name() for one in self.servers[at].models.list_models(Namespace.of(schema))}

    def case_1_and_2_property_changes(self, turn):
        ident = self.model(f"p{turn}")
        calls = [
            lambda on, key=f"k{n}": on.models.alter_model(ident, ModelChange.set_property(key, "v"))
            for n in range(THREADS)
        ]
        found = self.at_once(*calls)
        there = self.servers[0].models.get_model(ident).properties()
        for number, result in enumerate(found):
            failed = isinstance(result, Exception)
            self.count("1: a change that was answered is lost", not failed and f"k{number}" not in there)
            self.count("2: a change that failed is there", failed and f"k{number}" in there)

    def case_3_cascade_drop(self, turn):
        name = f"x{turn}"
        self.servers[0].schemas.create_schema(name, "", {})
        creates = [
            lambda on, n=n: on.models.register_model(NameIdentifier.of(name, f"m{n}"), "", {}) for n in range(THREADS)
        ]
        creates.insert(THREADS // 2, lambda on: on.schemas.drop_schema(name, True))
        dropped = self.at_once(*creates)[THREADS // 2]
        if dropped is True:
            self.servers[0].schemas.create_schema(name, "", {})
            self.count("3: a child outlives its schema", len(self.names(name)) > 0)

    def case_4_rename_and_drop(self, turn):
        old, new = self.model(f"r{turn}"), NameIdentifier.of("s", f"r{turn}n")
        self.servers[0].models.get_model(old).supports_tags().associate_tags(["pii"], [])
        self.own(f"r{turn}", "ann")
        self.at_once(
            lambda on: on.models.alter_model(old, ModelChange.rename(new.name())),
            lambda on: on.models.delete_model(old),
        )
        for ident in (old, new):
            if ident.name() in self.names():
                kept = self.servers[0].models.get_model(ident).supports_tags().list_tags()
                owner = self.servers[0].client.get_owner(self.object(ident.name()))
                self.count("4: what survives has lost its tag or owner", kept != ["pii"] or owner is None)

    def case_8_owners(self, turn):
        name, users = f"o{turn}", [f"u{turn}a", f"u{turn}b"]
        self.model(name)
        for user in users:
            self.servers[0].client.add_user(user)
        calls = [lambda on, user=user: on.client.set_owner(self.object(name), user, Owner.Type.USER) for user in users]
        found = self.at_once(*calls, *calls)
        owner = self.servers[1].client.get_owner(self.object(name))
        fails = all(isinstance(one, Exception) for one in found)
        self.count("8: no owner is left", not fails and (owner is None or owner.name() not in users))
        self.at_once(calls[0], lambda on: on.client.remove_user(users[0]))
        owner = self.servers[0].client.get_owner(self.object(name))
        self.count("8: an owner is not a user", owner is not None and owner.name() == users[0])

    def case_9_roles_and_tags(self, turn):
        one, other = self.servers[0].client, self.servers[1].client
        role, user, name, tag = f"r{turn}", f"g{turn}", f"t{turn}", f"tag{turn}"
        on_catalog = [SecurableObjects.of_catalog("cat", [Privileges.allow("USE_CATALOG")])]
        one.create_role(role, {}, on_catalog)
        one.add_user(user)
        self.at_once(lambda on: on.client.grant_roles_to_user([role], user), lambda on: on.client.delete_role(role))
        self.count("9: a user has a dead role", role in (other.get_user(user).roles() or []))
        one.create_role(role, {}, on_catalog)
        self.count("9: a new role has members", role in (one.get_user(user).roles() or []))
        self.model(name)
        one.create_tag(tag, "", {})
        model = self.servers[0].models.get_model(NameIdentifier.of("s", name))
        self.at_once(
            lambda _: model.supports_tags().associate_tags([tag], []),
            lambda on: on.models.delete_model(NameIdentifier.of("s", name)),
        )
        try:
            objects = other.get_tag(tag).associated_objects().objects()
        except Exception:  # noqa: BLE001  (a list that fails is wrong, too)
            objects = ["cannot be listed"]
        self.count("9: a tag is on a dead object", len(objects) > 0)

    def case_10_two_creates(self, turn):
        ident = NameIdentifier.of("s", f"c{turn}")
        found = self.at_once(*[lambda on: on.models.register_model(ident, "", {})] * THREADS)
        made = sum(not isinstance(one, Exception) for one in found)
        told = sum(isinstance(one, AlreadyExistsException) for one in found)
        self.count("10: not exactly one create succeeds", made != 1)
        self.count("10: a create is not told that the name is taken", made + told != THREADS)

    def case_11_and_12_renames(self, turn):
        old, new = self.model(f"w{turn}"), NameIdentifier.of("s", f"w{turn}n")
        renamed, *_ = self.at_once(
            lambda on: on.models.alter_model(old, ModelChange.rename(new.name())),
            lambda on: on.models.alter_model(old, ModelChange.update_comment("other")),
        )
        names = self.names() & {old.name(), new.name()}
        fails = isinstance(renamed, Exception)
        self.count("11: a change reverts a rename", names != ({old.name()} if fails else {new.name()}))
        first, third = self.model(f"v{turn}"), NameIdentifier.of("s", f"v{turn}n")
        found = self.at_once(
            lambda on: on.models.alter_model(first, ModelChange.rename(third.name())),
            lambda on: on.models.register_model(third, "", {}),
        )
        made = sum(not isinstance(one, Exception) for one in found)
        self.count("12: not exactly one gets the name", made != 1 or third.name() not in self.names())

    def case_5_and_13_drop_and_recreate(self, turn):
        ident = self.model(f"d{turn}")

        def cycle(on):
            for _ in range(3):
                try:
                    on.models.delete_model(ident)
                    on.models.register_model(ident, "", {})
                except (AlreadyExistsException, NotFoundException):
                    continue

        self.at_once(cycle, cycle)
        found = self.servers[0].models.delete_model(ident)
        again = self.servers[1].models.delete_model(ident)
        self.count("13: a drop cannot be told from a second one", again or (ident.name() in self.names()))
        self.count("13: what was made again is not there", not found)

    def case_15_and_16_other_server(self, turn):
        """One after another, on two servers: what one was told, the other knows."""
        one, other = self.servers[0], self.servers[1]
        ident, user, role = self.model(f"f{turn}"), f"s{turn}", f"seen{turn}"
        other.models.get_model(ident)
        one.models.alter_model(ident, ModelChange.set_property("k", "v"))
        self.count("15: a read is old", other.models.get_model(ident).properties().get("k") != "v")
        one.client.create_role(role, {}, [SecurableObjects.of_catalog("cat", [Privileges.allow("USE_CATALOG")])])
        one.client.add_user(user)
        other.client.get_user(user)
        one.client.grant_roles_to_user([role], user)
        self.count("15: a grant is not seen", role not in (other.client.get_user(user).roles() or []))
        one.client.revoke_roles_from_user([role], user)
        self.count("15: a role is seen that was taken", role in (other.client.get_user(user).roles() or []))
        one.client.disable_catalog("cat")
        try:
            other.models.register_model(NameIdentifier.of("s", f"late{turn}"), "", {})
            self.count("16: a disabled catalog takes a write", True)
        except Exception:  # noqa: BLE001  (refused, in whatever class)
            self.count("16: a disabled catalog takes a write", False)
        finally:
            one.client.enable_catalog("cat")
            other.client.enable_catalog("cat")

    def own(self, name, user):
        self.servers[0].client.set_owner(self.object(name), user, Owner.Type.USER)

    def object(self, name):
        return MetadataObjects.of(["cat", "s", name], MetadataObject.Type.MODEL)


def main(turns, *addresses):
    GravitinoAdminClient(uri=addresses[0]).create_metalake(LAKE, "", {})
    client = GravitinoClient(uri=addresses[0], metalake_name=LAKE)
    client.create_catalog("cat", Catalog.Type.MODEL, "model", "", {}).as_schemas().create_schema("s", "", {})
    client.create_tag("pii", "", {})
    client.add_user("ann")
    with ThreadPoolExecutor(THREADS + 1) as threads:
        races = Races([Server(address) for address in addresses], threads)
        cases = [getattr(races, name) for name in dir(races) if name.startswith("case_")]
        for turn in range(int(turns)):
            for case in cases:
                case(turn)
    print(json.dumps(races.wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
