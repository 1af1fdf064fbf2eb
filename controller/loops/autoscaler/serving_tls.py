"""TLS of the autoscaler's servers: certificates from files that are replaced, and client CAs that the cluster names."""

import ssl
from pathlib import Path

import structlog

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake

log = structlog.get_logger(__name__)
LOOK_S = 30.0


class ServingTls:
    """TLS context for all new connections. It follows renewed certificates."""

    def __init__(self, certificate: str, key: str, clock: Clock, setting: str) -> None:
        """clock: monotonic, seconds. setting: name of the setting, for errors. Raises ConfigError."""
        self._certificate, self._key = certificate, key
        self._clock, self._looked_at_s = clock, clock()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._trusted: set[str] = set()
        self._stamp = self._current_stamp()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            remedy = "mount a matching pair of PEM files"
            raise ConfigError(Mistake(f"{setting}, {certificate}", str(error), remedy)) from error

    def trust_clients_of(self, authority: str) -> None:
        """Demands client certificates, signed by this CA (PEM) or by one that was given before.

        A CA that was replaced stays trusted until the process ends: a context cannot drop one.
        """
        if authority in self._trusted:
            return
        try:
            self.context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            log.warning("the client CA cannot be used", why=str(error))
            return
        self._trusted.add(authority)
        self.context.verify_mode = ssl.CERT_REQUIRED

    def look(self) -> None:
        """Loads new files now and then; unusable files leave the previous ones in use."""
        if self._clock() - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = self._clock()
        if (stamp := self._current_stamp()) == self._stamp:
            return
        try:
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            log.warning("a new certificate cannot be used; the previous one stays in use", why=str(error))
        else:
            self._stamp = stamp

    def _current_stamp(self) -> tuple[int, ...]:
        paths = (Path(self._certificate), Path(self._key))
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
