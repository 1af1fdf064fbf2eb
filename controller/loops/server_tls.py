"""TLS of the operator's servers: certificates from files that are replaced while it runs, and trusted clients."""

import ssl
from pathlib import Path

import structlog

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake

log = structlog.get_logger(__name__)
LOOK_S = 30.0


class ServerTls:
    """TLS context for all new connections. It follows renewed certificates, which expire before the process ends."""

    def __init__(self, certificate: str, key: str, clock: Clock, setting: str) -> None:
        """clock: monotonic, seconds. setting: name of the setting, for errors.

        Raises ConfigError for files that cannot be used.
        """
        self._certificate, self._key = certificate, key
        self._clock, self._looked_at_s = clock, clock()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._trusted: set[str] = set()
        self._loaded = self._stamp()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            remedy = "mount a matching pair of PEM files"
            raise ConfigError(Mistake(f"{setting}, {certificate}", str(error), remedy)) from error

    def trust_clients_of(self, authority: str) -> None:
        """Demands client certificates, signed by this CA (PEM text) or one given before: a context drops none."""
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
        if (stamp := self._stamp()) == self._loaded:
            return
        try:
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            log.warning("new TLS files cannot be used; the previous ones stay in use", why=str(error))
        else:
            self._loaded = stamp

    def _stamp(self) -> tuple[int, ...]:
        paths = [Path(self._certificate), Path(self._key)]
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
