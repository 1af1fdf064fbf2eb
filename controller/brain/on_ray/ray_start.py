"""Ray start: the Ray that a brain process starts or joins, and the environment variables for it."""

import os
import secrets
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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
