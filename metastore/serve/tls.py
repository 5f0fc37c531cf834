"""TLS of a server: its certificate and key, which are read again when their files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from metastore.errors import InvalidArgument

__all__ = ["Tls"]

_LOG = logging.getLogger("metastore.serve")


class Tls:
    """A certificate with its chain, and its key, in PEM files. New connections use the current files.

    If the files cannot be read, those that were read last stay, and a warning is logged.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files. Raises InvalidArgument."""
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._seen = self._state()
        self._load()

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._load()
        except InvalidArgument as error:
            _LOG.warning("the certificate that was read last stays: %s", error)

    def _state(self) -> object:
        try:
            return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in (file.stat() for file in self._files)]
        except OSError:
            return None

    def _load(self) -> None:
        certificate, key = self._files
        # load into a trial first, so that a half-written change does not reach the context in use
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            for context in (trial, self.context):
                # an empty password, so that OpenSSL never asks on a terminal
                context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ValueError) as error:
            # its reason is None if OpenSSL does not find the certificate or key in the file
            if isinstance(error, ssl.SSLError):
                reason = error.reason or "one of them has no certificate or no key"
            else:
                reason = getattr(error, "strerror", None) or str(error)
            raise InvalidArgument(
                f"the certificate {certificate} and the key {key} cannot be used: {reason}; both are PEM files, and "
                "the key has no password"
            ) from None
