"""The option ``--vend`` of ``metastore serve``: the cloud that makes short-lived keys for a warehouse's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from metastore.cli.times import parse_duration
from metastore.errors import InvalidArgument

if TYPE_CHECKING:
    from metastore.serve import Vendor

__all__ = ["vendor_of"]

_SETTINGS: Final = {
    "role": ("duration", "endpoint"),
    "azure-account": ("duration", "endpoint"),
    "gcs-bucket": ("endpoint",),
}
"""The setting that chooses a cloud, and the other settings that it allows. Google decides how long its tokens live."""


def vendor_of(given: Mapping[str, str], properties: Mapping[str, str] | None) -> Vendor:
    """Return the source of a warehouse's short-lived keys, from its settings and the properties of its files.

    Raises InvalidArgument.
    """
    from metastore.serve import AzureSas, GcsTokens, Sts  # noqa: PLC0415  (an extra of its own)

    cloud = _cloud_of(given)
    name, endpoint = given[cloud], given.get("endpoint")
    if cloud == "gcs-bucket":
        return GcsTokens(name, properties=properties, endpoint=endpoint)
    life = parse_duration(given.get("duration", "1h")).total_seconds()
    vendor = Sts if cloud == "role" else AzureSas
    return vendor(name, properties=properties, endpoint=endpoint, duration=life)


def _cloud_of(given: Mapping[str, str]) -> str:
    """Return the setting that chooses the cloud.

    Raises InvalidArgument if none or several choose one, or if another setting does not belong to it.
    """
    clouds = [key for key in _SETTINGS if key in given]
    if len(clouds) != 1:
        raise InvalidArgument("--vend needs one of role=ARN (S3), azure-account=NAME and gcs-bucket=NAME")
    (cloud,) = clouds
    if unknown := given.keys() - {cloud, *_SETTINGS[cloud]}:
        known = " and ".join(_SETTINGS[cloud])
        raise InvalidArgument(f"--vend with {cloud} also allows only {known}, not {min(unknown)[:80]!r}")
    return cloud
