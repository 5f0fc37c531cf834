"""The documents of a model and of its versions.

    model          {"latest_version": n, "aliases": {alias: number, …}}
    model version  {"uris": {name: uri, …}, "aliases": [alias, …]}

Versions are owned rows. A version's name is its number, which counts from 1 and is never reused. An alias is stored
twice, in one commit: with the model, to find the version, and with the version, so that its row is complete.
"""

from __future__ import annotations

from collections.abc import Mapping

from metastore.arguments import items, shown
from metastore.errors import InvalidArgument
from metastore.names import clean_name, clean_text, exact_text

__all__ = ["clean_alias", "clean_aliases", "clean_uris"]


def clean_uris(uris: object) -> dict[str, str]:
    """Return the URIs of a model version by name. Raises InvalidArgument if there is none, or one is blank."""
    if not isinstance(uris, Mapping) or not uris:
        raise InvalidArgument(f"uris map names to the places of the model, at least one; not {shown(uris)}")
    clean = {}
    for name, uri in uris.items():
        if not clean_text(uri, f"the uri {shown(name)}").strip():
            raise InvalidArgument(f"the uri {shown(name)} must not be blank")
        clean[clean_name(name)] = exact_text(uri, "a uri")
    return clean


def clean_aliases(aliases: object) -> list[str]:
    """Return ``aliases`` without repetition, in order."""
    return sorted({clean_alias(alias) for alias in items(aliases, "aliases")})


def clean_alias(alias: object) -> str:
    """Return an alias. Raises InvalidArgument if it is not a name, or looks like a number."""
    name = clean_name(alias)
    if name.isdecimal():
        raise InvalidArgument(f"the alias {name!r} looks like the number of a version; choose another")
    return name
