"""Connection of a command to Ray: a temporary Ray on this machine, or a running cluster.

Ray is imported here and nowhere at the top of a module: everything else runs without it.
"""

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

from cluster.errors import ConfigError, Mistake

EMBEDDED = "embedded"
OBJECT_STORE_BYTES = 128 * 2**20
"""Size of the object store, in bytes. A snapshot of 60,000 pods takes a few MiB; a day of one trace less than 10 MiB.
The store takes memory only when used."""
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextmanager
def joined(
    address: str, *, cores: int, object_store_bytes: int = OBJECT_STORE_BYTES, folder: str = ""
) -> Iterator[Any]:
    """The `ray` module, connected to a temporary Ray with this many cores (`embedded`), or to the cluster at `address`.

    A temporary Ray listens with a private token, keeps its files in a folder that is deleted with it, and writes
    nothing to the home directory. A cluster is joined with the token in RAY_AUTH_TOKEN or in the file named by
    RAY_AUTH_TOKEN_PATH, and without a token only where RAY_AUTH_MODE is `disabled`. Raises ConfigError when that fails.

    folder: short path of an existing folder for the files of a temporary Ray; empty: a new one.
    """
    if find_spec("ray") is None:
        raise ConfigError(Mistake("--ray", "Ray is not installed", "pip install 'tonnage[ray]', or leave it out"))
    if address == EMBEDDED:
        with _own(cores, object_store_bytes, folder) as own:
            yield own
        return
    _require_token(address)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ray.exceptions.RayError, ValueError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            Mistake(f"ray address {address}", first, "name HOST:PORT of a running Ray head, and its token")
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _own(cores: int, object_store_bytes: int, folder: str) -> Iterator[Any]:
    # Socket paths have a limit of 107 bytes, so the folder is as near to the root as possible.
    folder = folder or tempfile.mkdtemp(prefix="tonnage-ray-", dir="/tmp")
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", *TOKEN_VARIABLES, "RAY_USAGE_STATS_ENABLED")}
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_own_token(), RAY_USAGE_STATS_ENABLED="0")
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    try:
        import ray

        ray.init(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=object_store_bytes,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
        )
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _own_token() -> str:
    """The token of this process's Ray, constant: Ray's native part reads it once and keeps it."""
    return secrets.token_hex(32)


def _require_token(address: str) -> None:
    """Raises ConfigError when no token is set: Ray itself would try for 20 s a call before it reports that."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return
    if not any(os.environ.get(name) for name in TOKEN_VARIABLES):
        raise ConfigError(
            Mistake(
                f"ray address {address}",
                "no token is given for it",
                "set RAY_AUTH_TOKEN_PATH to the cluster's token file, or RAY_AUTH_MODE=disabled if it has none",
            )
        )
    os.environ["RAY_AUTH_MODE"] = "token"
