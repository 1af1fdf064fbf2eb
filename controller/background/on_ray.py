"""Ray as a driver starts or joins it, with the environment for it, and tasks on it.

Ray takes many settings from the environment and from files in the home directory. Here all that matter are explicit: a
private home and temporary directory, and the token. It is imported here and nowhere at the top of a module: everything
else runs without it.
"""

import os
import secrets
import socket
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION
from controller.background import tasks
from controller.background.wire import Done

STORE_BYTES = 128 * 2**20
"""Size of an own Ray's object store, in bytes. Ray requires at least 75 MiB; a batch of histories takes a megabyte, a
day of one trace less than ten. The store takes memory only when used."""
REACH_S = 2.0
"""Seconds to reach the head's port before Ray joins it: Ray itself would try for a minute."""
RETRIES = 3
"""Retries of a task whose worker or node is lost."""
AT_ONCE = 100
"""Tasks that are with Ray at once: enough that its autoscaler sees what is wanted."""
AGENT = """
import os, sys, time
given = dict(each[2:].split("=", 1) for each in sys.argv if "=" in each)
for name in ("metrics_agent", "metrics_export", "dashboard_agent_listen", "runtime_env_agent"):
    path = f"{given['session-dir']}/{name}_port_{given['node-id']}"
    with open(path + ".new", "w") as file:
        file.write("1")
    os.rename(path + ".new", path)
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(5)
"""
"""Program of an agent that only says that it is there."""
POLL_S = 0.2
NICENESS = 19
"""Niceness of background work on a machine that it shares with the operator."""


@dataclass(frozen=True, slots=True)
class DriverStart:
    """What a driver process runs tasks on."""

    mode: Literal["none", "embedded", "cluster"] = "none"
    """none: its own process, one after another. embedded: a Ray of its own. cluster: the Ray at `address`."""
    folder: str = ""
    """Folder private to this process, for Ray's files; short, because paths of its sockets may have 107 characters."""
    address: str = ""
    """Head to join, `host:port`, from a node of the cluster."""
    token_file: str = ""
    """File with the cluster's token; empty: as the variables RAY_AUTH_... say. A Ray of its own gets its own token."""
    cpus: int = 1
    """Processors of a Ray of its own: the number of tasks at once."""
    registry: str = "controller.background.kinds"
    """Module whose `KINDS` are the kinds of tasks."""


def is_installed() -> bool:
    """Whether Ray can be imported."""
    try:
        return find_spec("ray") is not None
    except ImportError:
        return False


def check_installed(option: str) -> None:
    """Raises ConfigError where Ray is not installed, before a process waits for one that could never start."""
    if not is_installed():
        raise ConfigError(Mistake(option, "Ray is not installed", "pip install 'tonnage[ray]', or leave it out"))


def environment(start: DriverStart, given: Mapping[str, str]) -> dict[str, str]:
    """The environment with which the process must start: Ray reads it when it is imported.

    given: the parent's. Credentials are removed: no task talks to Kubernetes.
    """
    kept = {k: v for k, v in given.items() if not k.startswith(("RAY_", "KUBE", "TONNAGE_"))}
    token_file = start.token_file
    if start.mode == "embedded":
        token_file = _own_token(Path(start.folder))
    auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token_file}
    if not token_file:
        auth = {"RAY_AUTH_MODE": "token", **{k: v for k, v in given.items() if k.startswith("RAY_AUTH_")}}
    return {
        **kept,
        **auth,
        # The tables of a Ray of its own do not come back, and its nodes need not wait for them for a minute.
        **({"RAY_gcs_rpc_server_reconnect_timeout_s": "15"} if start.mode == "embedded" else {}),
        "HOME": start.folder,
        "TMPDIR": start.folder,
        "PYTHONPATH": os.pathsep.join((*_search_path(), *filter(None, [given.get("PYTHONPATH", "")]))),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_prestart_worker_first_driver": "0",
        # One thread each, so that a task takes the processor that it books, and gives the same result on any machine.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _search_path() -> list[str]:
    """Folders of the standard library, of Tonnage and of installed packages: they go before those that a user adds.

    Otherwise a folder of the user's with a `controller/` or a `random.py`, named by PYTHONPATH, would end every process
    of Ray.
    """
    library, here = os.path.dirname(os.__file__), str(Path(__file__).resolve().parents[2])
    standard = [path for path in sys.path if path.startswith(library) and "-packages" not in path]
    packages = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return [*standard, here, *(path for path in packages if path != here)]


def _own_token(folder: Path) -> str:
    """The path of a new secret token: Ray's ports are open to the machine, and each caller may run code."""
    path = folder / "token"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32), encoding="ascii")
    return str(path)


def connect(start: DriverStart) -> Any:
    """The `ray` module, connected. Raises ConfigError when Ray is not installed, ConnectionError without a cluster."""
    try:
        import ray
        from ray._private import services
    except ImportError as error:
        remedy = "pip install 'tonnage[ray]', or set it to none"
        raise ConfigError(Mistake("ray.mode", f"Ray cannot be imported: {error}", remedy)) from error
    shared = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    if start.mode == "cluster":
        _reach(start.address)
        ray.init(address=start.address, **shared)
        return ray
    # Ray also starts a monitor for clouds, one for logs, a server for its dashboard and two agents: 280 of 480 MB, for
    # nobody (tests/ray). It looks for their programs here, and does without all but the agents, whose ports it awaits.
    programs = Path(start.folder) / "ray"
    for agent in (programs / "dashboard/agent.py", programs / "_private/runtime_env/agent/main.py"):
        agent.parent.mkdir(parents=True)
        agent.write_text(AGENT, encoding="ascii")
    services.RAY_PATH = str(programs)
    services.logger.disabled = True
    ray.init(
        address="local",
        num_cpus=start.cpus,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
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


class Workers(ABC):
    """What runs the tasks, with their inputs."""

    runs_on: str

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._waiting: deque[tuple[str, str, tuple[Any, ...]]] = deque()
        self._flying: dict[Any, str] = {}

    @property
    def is_busy(self) -> bool:
        """Whether there are tasks without a result."""
        return bool(self._waiting or self._flying)

    def keep(self, part: str, content: bytes) -> None:
        """Keeps an input where tasks find it, once for all of them."""
        self._parts[part] = content

    def drop(self, part: str) -> None:
        self._parts.pop(part, None)

    def submit(self, kind: str, digest: str, parts: Sequence[str]) -> None:
        self._waiting.append((kind, digest, tuple(self._parts[part] for part in parts)))

    def answer(self) -> bool:
        """Whether they know this process; waits while they are frozen."""
        return True

    @abstractmethod
    def finished(self) -> Iterator[tuple[Done, bytes]]:
        """Results that have come. Raises ConnectionError where what runs the tasks is lost."""


class RayWorkers(Workers):
    """Tasks on Ray, one processor each."""

    def __init__(self, start: DriverStart) -> None:
        """Raises ConfigError, ConnectionError, RuntimeError."""
        super().__init__()
        self._ray = connect(start)
        self._node = self._ray.get_runtime_context().get_node_id()
        niceness = 0 if start.mode == "cluster" else NICENESS
        self._run = self._ray.remote(run_task).options(num_cpus=1, max_retries=RETRIES)
        self._same = VERSION, start.registry, niceness
        cpus = self._ray.cluster_resources().get("CPU", 0)
        self.runs_on = f"Ray {self._ray.__version__}, {cpus:.0f} CPUs"

    def keep(self, part: str, content: bytes) -> None:
        self._parts[part] = self._ray.put(content)

    def answer(self) -> bool:
        return any(each["Alive"] and each["NodeID"] == self._node for each in self._ray.nodes())

    def finished(self) -> Iterator[tuple[Done, bytes]]:
        """Results that have come; waits for a moment. Raises ConnectionError where Ray itself is lost."""
        while self._waiting and len(self._flying) < AT_ONCE:
            kind, digest, parts = self._waiting.popleft()
            self._flying[self._run.remote(*self._same, kind, *parts)] = digest
        ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=POLL_S)
        for task in ready:
            yield self._outcome(task, self._flying.pop(task))

    def _outcome(self, task: Any, digest: str) -> tuple[Done, bytes]:
        errors = self._ray.exceptions
        try:
            return Done(digest), self._ray.get(task, timeout=REACH_S)
        except errors.RayTaskError as error:
            return Done(digest, str(error).strip().rpartition("\n")[2] or "failed"), b""
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            return Done(digest, f"Ray lost it {RETRIES + 1} times: {_first_line(error)}"), b""
        except errors.RayError as error:
            # Not the task's fault: the next driver gets it. Ray ends this process as well, but often later than this.
            raise ConnectionError(f"Ray is lost: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def run_task(version: str, registry: str, niceness: int, kind: str, *inputs: bytes) -> bytes:
    """A task, in a worker of Ray's."""
    if version != VERSION:
        raise RuntimeError(f"a worker runs Tonnage {VERSION}, its driver {version}; run one image everywhere")
    os.nice(max(0, niceness - os.nice(0)))
    return tasks.function_of(registry, kind)(*inputs)
