"""Keys of the fleet from a mounted folder: one file per key, so that a new one can be added before the old one is
removed.
"""

from collections.abc import Callable
from pathlib import Path

from cluster.errors import ConfigError, Mistake
from power.leases.messages import Keys, node_secret

LEAST_BYTES = 32
SPREADS_S = 240.0
"""Time until all processes have an added key: kubelets update a mounted Secret within two minutes, and it is read every
30 s."""


def read_keys(folder: Path) -> Keys:
    """The fleet's keys. The newest is the one whose name sorts last, e.g. `2026-11-01`.

    Files whose names begin with a dot belong to the mount. Raises ConfigError for an empty folder or a short key.
    """
    try:
        found = {
            path.name: path.read_bytes().strip()
            for path in sorted(folder.iterdir())
            if not path.name.startswith(".") and path.is_file()
        }
    except OSError as error:
        raise ConfigError(
            Mistake(f"keys {folder}", error.strerror or str(error), "mount the Secret that holds the fleet's keys")
        ) from error
    if not found:
        raise ConfigError(Mistake(f"keys {folder}", "has no key", "add a file with a key of 32 random bytes or more"))
    short = [name for name, secret in found.items() if len(secret) < LEAST_BYTES]
    if short:
        raise ConfigError(
            Mistake(f"keys {folder}/{short[0]}", f"is shorter than {LEAST_BYTES} bytes", "openssl rand -hex 32")
        )
    return Keys(max(found), found)


def keys_of_node(fleet: Keys, node: str) -> Keys:
    """The keys as one node knows them."""
    return Keys(fleet.newest, {name: node_secret(secret, node) for name, secret in fleet.secrets.items()})


class MountedKeys:
    """Keys in a folder, read again periodically. If they cannot be read, the previous ones stay valid.

    An added key is accepted at once, but used for signing only when all processes should have it. So no message is
    refused while a key spreads.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], every_s: float = 30.0) -> None:
        """Raises ConfigError."""
        self._folder, self._clock, self._every_s = folder, clock, every_s
        self._keys, self._read_at_s = read_keys(folder), clock()
        self._seen_at_s = dict.fromkeys(self._keys.secrets, float("-inf"))
        self.mistake = ""
        """Reason why the last reading of the folder was not used; empty if it was."""

    def __call__(self) -> Keys:
        if self._clock() - self._read_at_s > self._every_s:
            self._read_at_s = self._clock()
            try:
                secrets = read_keys(self._folder).secrets
            except ConfigError as error:
                self.mistake = str(error)
            else:
                self.mistake = ""
                self._seen_at_s = {name: self._seen_at_s.get(name, self._read_at_s) for name in secrets}
                spread = [name for name, at_s in self._seen_at_s.items() if self._read_at_s - at_s >= SPREADS_S]
                found = Keys(max(spread or secrets), secrets)
                # The same object while the keys are the same, so that values derived from them need not be computed
                # again.
                self._keys = self._keys if found == self._keys else found
        return self._keys
