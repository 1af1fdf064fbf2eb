"""Mutual TLS for the agents' port, from files that are replaced while the process runs."""

import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

from cluster.errors import ConfigError, Mistake

log = structlog.get_logger(__name__)
LOOK_S = 30.0


class MountedTls:
    """A context that every new line is made with. Certificates live for weeks, this process for longer.

    An authority that is taken out of `ca` is trusted until the process ends: a context cannot forget one.
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
                Mistake(f"power.tls, {certificate}", str(error), "mount PEM files of one pair")
            ) from error

    def look(self) -> None:
        """Take new files now and then; what cannot be used leaves what was."""
        if self._clock() - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = self._clock()
        if (stamp := self._stamp()) == self._changed_at:
            return
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            log.warning("new TLS files cannot be used; those before stay", why=str(error))
        else:
            self._changed_at = stamp

    def _load(self) -> None:
        ca, certificate, key = self._files
        self.context.load_cert_chain(certificate, key)
        self.context.load_verify_locations(ca)

    def _stamp(self) -> tuple[int, ...]:
        return tuple(path.stat().st_mtime_ns if (path := Path(name)).exists() else 0 for name in self._files)
