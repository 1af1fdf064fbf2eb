"""Ray as a brain process starts or joins it, with the environment for it, and as a command joins it for a while.

Ray takes many settings from the environment and from files in the home directory. Here all that matter are explicit: a
private home and temporary directory, the token, and how soon a silent node is given up. It is imported here and nowhere
at the top of a module: everything else runs without it.
"""

import logging
import os
import secrets
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake

SILENT_NODE: Mapping[str, str] = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""Health check settings of the head: a node that freezes is given up after 7 s instead of 67 (measured on Ray 2.60)."""


@dataclass(frozen=True, slots=True)
class RayStart:
    """Ray that a brain process starts or joins, and its number of planners."""

    folder: str
    """Folder private to this process, for Ray's files; short, because paths of its sockets may have 107 characters."""
    address: str = ""
    """Head to join, `host:port`, from a node of the cluster; empty: a Ray of its own."""
    token_file: str = ""
    """File with the cluster's token; a Ray of its own gets its own token."""
    planners: int = 1


def check_installed(option: str) -> None:
    """Raises ConfigError where Ray is not installed, before a process waits for one that could never start."""
    try:
        found = find_spec("ray")
    except ImportError:
        found = None
    if found is None:
        raise ConfigError(Mistake(option, "Ray is not installed", "pip install 'tonnage[ray]', or leave it out"))


def environment(start: RayStart, given: Mapping[str, str]) -> dict[str, str]:
    """The environment with which the process must start: Ray reads it when it is imported.

    given: the parent's. Credentials are removed: no Ray process talks to Kubernetes.
    """
    kept = {k: v for k, v in given.items() if not k.startswith(("RAY_", "KUBE", "TONNAGE_"))}
    return {
        **kept,
        **({} if start.address else SILENT_NODE),
        "HOME": start.folder,
        "TMPDIR": start.folder,
        "PYTHONPATH": os.pathsep.join((*_search_path(), *filter(None, [given.get("PYTHONPATH", "")]))),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": start.token_file or _own_token(Path(start.folder)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_prestart_worker_first_driver": "0",
        # One thread each: solvers run with one, and idle thread pools of other libraries would only cost memory.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _search_path() -> list[str]:
    """Folders of the standard library, of Tonnage and of installed packages: they go before those that a user adds.

    Otherwise a folder of the user's with a `controller/` or a `random.py`, named by PYTHONPATH, would end every process
    of Ray.
    """
    library, here = os.path.dirname(os.__file__), str(Path(__file__).resolve().parents[3])
    standard = [path for path in sys.path if path.startswith(library) and "-packages" not in path]
    packages = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return [*standard, here, *(path for path in packages if path != here)]


def _own_token(folder: Path) -> str:
    """The path of a new secret token: Ray's ports are open to the machine, and each caller may run code."""
    path = folder / "token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    return str(path)


NAMESPACE = "tonnage"
BRAIN_STORE_BYTES = 80 * 2**20
"""Size of the object store, in bytes. Ray requires at least 75 MiB; a snapshot of 60,000 pods takes 7."""
REACH_S = 2.0
"""Seconds to reach the head's port before Ray joins it: Ray itself would try for a minute."""


def connect(start: RayStart) -> Any:
    """The `ray` module, connected. Raises ConfigError when Ray is not installed, ConnectionError without a cluster."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            Mistake("brain.mode", f"Ray cannot be imported: {error}", "pip install 'tonnage[ray]', or set it to inline")
        ) from error
    shared = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "error", "configure_logging": False}
    if start.address:
        _reach(start.address)
        ray.init(address=start.address, **shared)
    else:
        ray.init(
            num_cpus=start.planners + 1,
            include_dashboard=False,
            object_store_memory=BRAIN_STORE_BYTES,
            _temp_dir=start.folder,
            _node_ip_address="127.0.0.1",
            **shared,
        )
    return ray


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), REACH_S).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no Ray head at {address}: {error}") from error


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
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_process_token(), RAY_USAGE_STATS_ENABLED="0")
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
def _process_token() -> str:
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
