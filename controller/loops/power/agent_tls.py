"""Mutual TLS of the agents' port, from files that are replaced while the process runs."""

import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

from cluster.errors import ConfigError, Mistake

log = structlog.get_logger(__name__)
LOOK_S = 30.0


class MountedTls:
    """TLS context for all new connections. It follows renewed certificates, which expire before the process ends.

    An authority removed from `ca` stays trusted until the process ends: a context cannot drop one.
    """

    def __init__(self, ca: str, certificate: str, key: str, clock: Callable[[], float]) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._files = (ca, certificate, key)
        self._clock, self._looked_at_s = clock, clock()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.verify_mode = ssl.CERT_REQUIRED
        self._changed_at = self._stamp()
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                Mistake(f"power.tls, {certificate}", str(error), "mount a matching pair of PEM files")
            ) from error

    def look(self) -> None:
        """Loads new files periodically; unusable files leave the previous ones in use."""
        if self._clock() - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = self._clock()
        if (stamp := self._stamp()) == self._changed_at:
            return
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            log.warning("new TLS files cannot be used; the previous ones stay in use", why=str(error))
        else:
            self._changed_at = stamp

    def _load(self) -> None:
        ca, certificate, key = self._files
        self.context.load_cert_chain(certificate, key)
        self.context.load_verify_locations(ca)

    def _stamp(self) -> tuple[int, ...]:
        return tuple(path.stat().st_mtime_ns if (path := Path(name)).exists() else 0 for name in self._files)
