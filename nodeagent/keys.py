"""The fleet's secret as a mounted folder: one file per key, so that a new one can be added before the old one goes."""

from pathlib import Path

from cluster.errors import ConfigError, Mistake
from power.lease_message import Keys, node_secret

LEAST_BYTES = 32


def read_keys(folder: Path, node: str) -> Keys:
    """The keys as this node knows them. The newest is the one whose name comes last, e.g. `2026-11-01`.

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
    return Keys(max(found), {name: node_secret(secret, node) for name, secret in found.items()})
