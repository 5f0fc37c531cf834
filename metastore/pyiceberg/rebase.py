"""Put an append on top of the commits that other writers made meanwhile.

An append adds manifests and removes nothing. So it can follow any snapshot. A new manifest list has the manifests of
the append and those of the newest snapshot, under the next sequence number. The files stay as the client wrote them.
Sequence numbers in an added manifest are null, so readers take them from the list (Iceberg table specification,
"Sequence number inheritance").

All other requirements of the client must hold. A changed schema fails, as does a branch that moved under an overwrite.
A server must check its clients' requirements, unless they ask for the merge (docs/iceberg.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.io import FileIO
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from metastore.clock import SYSTEM
from metastore.pyiceberg.manifests import manifests_of

__all__ = ["Rebased", "rebase"]

_WRITABLE_FORMATS = (1, 2)
"""The table formats whose manifest lists PyIceberg can write."""


@dataclass(frozen=True)
class Rebased:
    """Updates that fit the newest metadata, the manifest lists written for them, and those that they replace."""

    updates: tuple[TableUpdate, ...]
    written: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def rebase(
    io: FileIO,
    locations: LocationProvider,
    metadata: TableMetadata,
    requirements: Sequence[TableRequirement],
    updates: tuple[TableUpdate, ...],
    *,
    merging: bool,
) -> Rebased:
    """Return updates that fit ``metadata``.

    Raises CommitFailedException if a requirement is false. With ``merging``, the branch to which the updates append may
    have moved. Only a client that writes nothing but appends may request that. Java's writers also call an overwrite
    that only adds files an append, and depend on their requirement.
    """
    moved = [requirement for requirement in requirements if not _holds(requirement, metadata, updates)]
    if moved and not merging:
        raise _refused(moved, metadata)
    added = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
    if not moved and all(_is_newest(snapshot, metadata) for snapshot in added):
        return Rebased(updates)
    branch = _branch(moved, updates)
    own = [_own_manifests(io, snapshot) for snapshot in added]
    if branch is None or metadata.format_version not in _WRITABLE_FORMATS or any(part is None for part in own):
        raise _refused(moved, metadata)
    return _stacked(io, locations, metadata, branch, updates, [part for part in own if part is not None])


def _holds(requirement: TableRequirement, metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> bool:
    """Whether a requirement holds.

    False: a branch to which the updates append has moved. Any other failure is raised.
    """
    try:
        requirement.validate(metadata)
    except CommitFailedException:
        if isinstance(requirement, AssertRefSnapshotId) and _branch([requirement], updates) is not None:
            return False
        raise
    return True


def _branch(moved: Sequence[TableRequirement], updates: tuple[TableUpdate, ...]) -> str | None:
    """Return the one branch that the updates append to; None if there is none, or more than one."""
    names = {update.ref_name for update in updates if isinstance(update, SetSnapshotRefUpdate)}
    names.update(requirement.ref for requirement in moved if isinstance(requirement, AssertRefSnapshotId))
    has_snapshot = any(isinstance(update, AddSnapshotUpdate) for update in updates)
    return names.pop() if has_snapshot and len(names) == 1 else None


def _is_newest(snapshot: Snapshot, metadata: TableMetadata) -> bool:
    number = snapshot.sequence_number
    return metadata.format_version == 1 or number is None or number > metadata.last_sequence_number


def _refused(moved: Sequence[TableRequirement], metadata: TableMetadata) -> CommitFailedException:
    for requirement in moved:
        try:
            requirement.validate(metadata)
        except CommitFailedException as error:
            return error
    return CommitFailedException(
        "Requirement failed: the table has a newer snapshot, and this is not an append; refresh the table and repeat"
    )


def _own_manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile] | None:
    """Return the manifests that a snapshot adds; None unless it is an append that only adds files."""
    if snapshot.summary is None or snapshot.summary.operation is not Operation.APPEND:
        return None
    own = [manifest for manifest in _manifests(io, snapshot) if manifest.added_snapshot_id == snapshot.snapshot_id]
    return own if all(_only_adds(manifest) for manifest in own) else None


def _manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot. Raises CommitFailedException if ``io`` may not read their list."""
    try:
        return manifests_of(io, snapshot)
    except ForbiddenError as error:
        raise CommitFailedException(
            f"the commit cannot be merged with the snapshot {snapshot.snapshot_id}: its manifest list is outside the "
            "table's folder; refresh the table and repeat"
        ) from error


def _only_adds(manifest: ManifestFile) -> bool:
    kept = (manifest.existing_files_count, manifest.deleted_files_count)
    return manifest.content == ManifestContent.DATA and kept == (0, 0)


def _stacked(
    io: FileIO,
    locations: LocationProvider,
    metadata: TableMetadata,
    branch: str,
    updates: tuple[TableUpdate, ...],
    own: list[list[ManifestFile]],
) -> Rebased:
    head = metadata.snapshot_by_name(branch)
    number = metadata.next_sequence_number()
    manifests = iter(own)
    stacked: list[TableUpdate] = []
    written: list[str] = []
    replaced: list[str] = []
    for update in updates:
        if not isinstance(update, AddSnapshotUpdate):
            stacked.append(update)
            continue
        replaced.append(update.snapshot.manifest_list)
        head = _on_top(io, locations, metadata, update.snapshot, head, number, next(manifests))
        written.append(head.manifest_list)
        stacked.append(AddSnapshotUpdate(snapshot=head))
        number += 1
    return Rebased(tuple(stacked), tuple(written), tuple(replaced))


def _on_top(
    io: FileIO,
    locations: LocationProvider,
    metadata: TableMetadata,
    snapshot: Snapshot,
    head: Snapshot | None,
    number: int,
    own: list[ManifestFile],
) -> Snapshot:
    """Return ``snapshot`` with ``head`` as its parent, and write its manifest list."""
    below = [] if head is None else [m for m in _manifests(io, head) if m.has_added_files() or m.has_existing_files()]
    location = locations.new_metadata_location(f"snap-{snapshot.snapshot_id}-{number}-{SYSTEM.operation_id()}.avro")
    parent = None if head is None else head.snapshot_id
    codec: Any = metadata.properties.get(
        TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
    )
    with write_manifest_list(
        metadata.format_version, io.new_output(location), snapshot.snapshot_id, parent, number, codec
    ) as writer:
        writer.add_manifests([_unnumbered(manifest) for manifest in own] + below)
    return snapshot.model_copy(
        update={
            "parent_snapshot_id": parent,
            "sequence_number": number if metadata.format_version > 1 else snapshot.sequence_number,
            "manifest_list": location,
            "summary": _summed(snapshot, head),
        }
    )


def _unnumbered(manifest: ManifestFile) -> ManifestFile:
    """Return the manifest without the sequence number that a list gave it."""
    fresh = copy(manifest)
    fresh.sequence_number = UNASSIGNED_SEQ
    fresh.min_sequence_number = UNASSIGNED_SEQ
    return fresh


def _summed(snapshot: Snapshot, head: Snapshot | None) -> Summary:
    """Return the summary with the totals of the new parent."""
    assert snapshot.summary is not None
    own = {k: v for k, v in snapshot.summary.additional_properties.items() if not k.startswith("total-")}
    before = head.summary.additional_properties if head is not None and head.summary is not None else None
    return update_snapshot_summaries(Summary(Operation.APPEND, **own), before)
