"""The source of a warehouse's credentials: one form for static credentials, short-lived keys and vendors.

A warehouse has the same credentials for all files, or short-lived keys of a cloud, or a vendor of the deployment. The
server calls them in the same way. They differ in the checks before the call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from metastore.serve.iceberg.credentials import Static, Vended, Vendor
from metastore.serve.iceberg.short_lived import ShortLived
from metastore.serve.principals import Principal

__all__ = ["Source", "source_of"]


@dataclass(frozen=True)
class Source:
    """Makes the credentials of one warehouse."""

    vend: Callable[[str, Principal, Collection[str]], Vended | None]
    """Return credentials for a table's location, for a user with these rights; None: no credentials."""
    properties: Callable[[], Mapping[str, str]] = dict
    """Return the properties with which the server itself reaches files."""
    per_table: bool = True
    """Whether credentials open one table's folder. Then no other table may lie in that folder."""
    by_rights: bool = False
    """Whether credentials depend on the user's rights on the table. Then the rights are read first."""


def source_of(place: str, given: Mapping[str, str] | Vendor) -> Source:
    """Return the source for the credentials that an operator gave for a warehouse. Raises InvalidArgument."""
    if isinstance(given, Mapping):
        return _of_all_files(Static(place, given))
    return _of_tables(given) if isinstance(given, ShortLived) else _of_deployment(given)


def _of_all_files(static: Static) -> Source:
    return Source(lambda location, user, _: static.vend(location, user.name), static.properties, per_table=False)


def _of_tables(keys: ShortLived[object]) -> Source:
    # by the principal's key, because a name may belong to another user later
    return Source(lambda location, user, rights: keys.vend(location, user.key, rights), keys.properties, by_rights=True)


def _of_deployment(vendor: Vendor) -> Source:
    return Source(lambda location, user, _: vendor.vend(location, user.name))
