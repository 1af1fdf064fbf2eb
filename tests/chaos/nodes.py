"""Ray cluster of several nodes on this machine, in its own process, for the injection of faults.

The process hosts the nodes by Ray's own test cluster and accepts commands, one JSON value per line. So the sender of
the commands needs no Ray.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SILENT_NODE: Mapping[str, str] = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""Settings of the chart's Ray: a node that freezes is given up after 7 s instead of 67 (measured on Ray 2.60)."""
PATIENCE_S = 90.0
STORE_BYTES = 80 * 2**20


@dataclass(frozen=True, slots=True)
class RayNodes:
    """Running Ray cluster."""

    host: "subprocess.Popen[str]"
    address: str
    token_file: str
    folder: Path
    environment: Mapping[str, str]

    def order(self, *words: str) -> Any:
        """Send a command to the host; returns its answer."""
        assert self.host.stdin is not None
        assert self.host.stdout is not None
        self.host.stdin.write(json.dumps(words) + "\n")
        self.host.stdin.flush()
        answer = self.host.stdout.readline()
        if not answer:
            raise RuntimeError(f"the host of the Ray nodes ended at {words}; see {self.folder}/host.log")
        return json.loads(answer)

    def raylets(self) -> list[int]:
        """Pids of the workers' raylets."""
        found: list[int] = self.order("raylets")
        return found

    def head(self) -> list[int]:
        """Pids of the head: GCS and raylet."""
        found: list[int] = self.order("head")
        return found


@contextmanager
def ray_nodes(workers: int = 2) -> Iterator[RayNodes]:
    """A head without CPUs, and `workers` workers with two CPUs each."""
    folder = Path(tempfile.mkdtemp(prefix="tngc"))
    (folder / "ray").mkdir()  # Ray writes the address of its head there, wherever its other files are
    token = folder / "token"
    token.write_text(secrets.token_hex(32), encoding="ascii")
    token.chmod(0o600)
    root = str(Path(__file__).resolve().parents[2])
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
        **SILENT_NODE,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONPATH": root,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "30",
        "RAY_enable_metrics_collection": "0",
    }
    with (folder / "host.log").open("w", encoding="utf-8") as log:
        host = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "tests.chaos.nodes", str(folder), str(workers)],
            cwd=root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert host.stdout is not None
    try:
        address = host.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"no Ray nodes: {(folder / 'host.log').read_text(encoding='utf-8')[-2000:]}")
        yield RayNodes(host, address, str(token), folder, environment)
    finally:
        left = [*tree_of(host.pid), *in_session(host.pid)]  # with its head it may have ended before its nodes
        for pid in left:
            send(pid, signal.SIGCONT)
        with suppress(OSError):
            if host.stdin:
                host.stdin.close()
        try:
            host.wait(20)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()
        for pid in left:
            send(pid, signal.SIGKILL)
        host.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(nodes: RayNodes, *options: str) -> Iterator[None]:
    """A node as its container starts it: `ray start`."""
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", *options]
    with (nodes.folder / "started.log").open("a", encoding="utf-8") as log:
        node = subprocess.Popen(  # noqa: S603
            command, env=nodes.environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        for pid in in_session(node.pid):
            send(pid, signal.SIGKILL)
        node.wait()


@contextmanager
def driver_server(nodes: RayNodes, token: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """(process, address) of a `tonnage background serve` beside the head."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "cli.main", "background", "serve", "--listen", address, "--token-file", str(token)]
    command += ["--ray-address", nodes.address, "--ray-token-file", nodes.token_file]
    with (nodes.folder / "server.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2], stderr=log)  # noqa: S603
    try:
        yield server, address
    finally:
        left = tree_of(server.pid)
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        for pid in left:
            send(pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def parents() -> Mapping[int, int]:
    """Parent pid of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def in_session(leader: int) -> list[int]:
    """Processes of an OS session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += [int(path.name)] if os.getsid(int(path.name)) == leader else []
    return found


def tree_of(pid: int) -> list[int]:
    """Pid of a process and of all its descendants."""
    above, tree = parents(), [pid]
    for each in tree:
        tree += [child for child, parent in above.items() if parent == each]
    return tree


def host(folder: Path, workers: int) -> None:
    """Start the nodes, print the head's address, and execute commands until the input ends."""
    from ray.cluster_utils import Cluster

    shared = {"object_store_memory": STORE_BYTES, "temp_dir": str(folder / "ray"), "include_log_monitor": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "gcs_server_port": _free_port(), **shared},
    )
    for _ in range(workers):
        cluster.add_node(num_cpus=2, **shared)
    _answer(cluster.address)
    for line in sys.stdin:
        match json.loads(line):
            case ["raylets"]:
                _answer([_raylet(node) for node in cluster.worker_nodes])
            case ["head"]:
                _answer([cluster.head_node.all_processes["gcs_server"][0].process.pid, _raylet(cluster.head_node)])
            case ["kill worker", raylet]:
                node = next(node for node in cluster.worker_nodes if _raylet(node) == int(raylet))
                cluster.remove_node(node, allow_graceful=False)
                _answer(True)
            case ["add worker"]:
                cluster.add_node(num_cpus=2, **shared)
                _answer(True)
    cluster.shutdown()


def _raylet(node: Any) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _answer(what: Any) -> None:
    print(what if isinstance(what, str) else json.dumps(what), flush=True)  # noqa: T201 - the answer to a command


if __name__ == "__main__":
    host(Path(sys.argv[1]), int(sys.argv[2]))
