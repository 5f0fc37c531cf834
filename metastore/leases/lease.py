"""What ``acquire`` returns: one lease, or several that were acquired together. See ``hold.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from metastore.leases.hold import Hold

__all__ = ["Lease", "LeaseSet"]


class Lease(Hold):
    """One lease that is held. Acquired with ``store.leases.acquire(name)``."""

    @property
    def name(self) -> str:
        """The name of the lease."""
        return self._grants[0].name

    @property
    def token(self) -> int | None:
        """The fencing token; None if the lock files of this format have no tokens."""
        return self._grants[0].token

    def __repr__(self) -> str:
        return f"Lease({self.name!r}, token={self.token}, owner={self.owner!r}, expires_at={self.expires_at})"


class LeaseSet(Hold, Mapping[str, int | None]):
    """Several leases that are acquired, renewed and released together: a mapping from names to tokens."""

    def __getitem__(self, name: str) -> int | None:
        for grant in self._grants:
            if grant.name == name:
                return grant.token
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self._grants)

    def __repr__(self) -> str:
        return f"LeaseSet({dict(self)}, owner={self.owner!r}, expires_at={self.expires_at})"
