"""The fleet's secret as a mounted folder: one file per key, so that a new one can be added before the old one goes."""

from collections.abc import Callable
from pathlib import Path

from cluster.errors import ConfigError, Mistake
from power.leases.messages import Keys, node_secret

LEAST_BYTES = 32
SPREADS_S = 240.0
"""Until everybody has a key that was added: kubelets bring a Secret's change within two minutes, we look each 30 s."""


def read_keys(folder: Path) -> Keys:
    """The fleet's keys. The newest is the one whose name comes last, e.g. `2026-11-01`.

    Files whose names begin with a dot are the mount's own. Raises ConfigError for an empty folder or a short key.
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
        raise ConfigError(Mistake(f"keys {folder}", "there is none", "put a key of 32 random bytes or more into it"))
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
    """The keys in a folder, read anew now and then. Keys that cannot be read leave those that were.

    A key that is added is taken from others at once, and signed with only when everybody should have it: nobody refuses
    anybody while a key spreads.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], every_s: float = 30.0) -> None:
        """Raises ConfigError."""
        self._folder, self._clock, self._every_s = folder, clock, every_s
        self._keys, self._read_at_s = read_keys(folder), clock()
        self._seen_at_s = dict.fromkeys(self._keys.secrets, float("-inf"))
        self.mistake = ""
        """Why the newest reading was not taken."""

    def __call__(self) -> Keys:
        if self._clock() - self._read_at_s > self._every_s:
            self._read_at_s = self._clock()
            try:
                found = self._with_a_known_newest(read_keys(self._folder))
            except ConfigError as error:
                self.mistake = str(error)
            else:
                self.mistake = ""
                # The same object as long as they are the same: whoever derives from them need not do it again.
                self._keys = self._keys if found == self._keys else found
        return self._keys

    def _with_a_known_newest(self, found: Keys) -> Keys:
        """The newest of those that were here for long; of all, where none was."""
        self._seen_at_s = {name: self._seen_at_s.get(name, self._read_at_s) for name in found.secrets}
        spread = [name for name, at_s in self._seen_at_s.items() if self._read_at_s - at_s >= SPREADS_S]
        return Keys(max(spread or found.secrets), found.secrets)
