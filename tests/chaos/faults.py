"""Faults of the brain (the planner process on Ray): injection, end, and expected recovery time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from tests.chaos.nodes import RayNodes, parents, send, tree_of

Undo = Callable[[], None]

QUEUED = 8
"""Calls that another driver sends to a planner at once."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Target of the faults."""

    nodes: RayNodes
    server: "subprocess.Popen[bytes]"
    """Process of `tonnage brain serve`."""

    @property
    def driver(self) -> int:
        """Pid of the brain process, the server's child."""
        return next(pid for pid, parent in parents().items() if parent == self.server.pid)

    @property
    def planner(self) -> int:
        """Pid of the planner, the youngest where there are several."""
        found = [pid for raylet in self.nodes.raylets() for pid in tree_of(raylet) if _is_planner(pid)]
        return max(found, key=_born)

    @property
    def planners_node(self) -> int:
        """Pid of the raylet on the planner's node."""
        return parents()[self.planner]


def _is_planner(pid: int) -> bool:
    """Whether a process is a planner: Ray names a worker process after its actor."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::PlannerActor")
    return False


def _born(pid: int) -> int:
    """Start time of a process, in clock ticks since boot."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    do: Callable[[Scene], Undo]
    """Injects the fault; returns the function that ends it."""
    hold_s: float
    """Duration of the fault, seconds."""
    within_s: float
    """Allowed recovery time, seconds, from the injection, or from the end where recovery is impossible before."""
    counts_from_end: bool = False


def nothing() -> None:
    """End of a fault that needs no action."""


def kill_driver(scene: Scene) -> Undo:
    send(scene.driver, signal.SIGKILL)
    return nothing


def freeze_driver(scene: Scene) -> Undo:
    driver = scene.driver
    send(driver, signal.SIGSTOP)
    return lambda: send(driver, signal.SIGCONT)


def kill_planner(scene: Scene) -> Undo:
    send(scene.planner, signal.SIGKILL)
    return nothing


def freeze_planner(scene: Scene) -> Undo:
    planner = scene.planner
    send(planner, signal.SIGSTOP)
    return lambda: send(planner, signal.SIGCONT)


def kill_worker(scene: Scene) -> Undo:
    raylet = scene.planners_node
    for pid in tree_of(raylet):
        send(pid, signal.SIGKILL)
    return lambda: _replace(scene, raylet)


def freeze_worker(scene: Scene) -> Undo:
    frozen = tree_of(scene.planners_node)
    for pid in frozen:
        send(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in reversed(frozen):
            send(pid, signal.SIGCONT)
        # A node that Ray declared dead exits when it resumes. It has time to do harm before.
        pause = Event()
        for _ in range(100):
            if frozen[0] not in parents():
                break
            pause.wait(0.1)
        _replace(scene, frozen[0])

    return thaw


def _replace(scene: Scene, raylet: int) -> None:
    """Replace a dead worker, as a kubelet would."""
    scene.nodes.order("kill worker", str(raylet))
    scene.nodes.order("add worker")


def kill_head(scene: Scene) -> Undo:
    scene.nodes.order("kill head")
    return lambda: scene.nodes.order("start head")


def freeze_head(scene: Scene) -> Undo:
    frozen = scene.nodes.head()
    for pid in frozen:
        send(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in frozen:
            send(pid, signal.SIGCONT)

    return thaw


def stall_planner(scene: Scene) -> Undo:
    """A call that never returns, as by a bug in a solver."""
    return meddle(scene, 600.0)


def fill_queue(scene: Scene) -> Undo:
    """Another driver keeps the planner's queue full, with calls of a second each."""
    return meddle(scene, 1.0)


FAULTS = (
    Fault("kill the brain process", kill_driver, 0.0, 15.0),
    Fault("freeze the brain process", freeze_driver, 12.0, 20.0),
    Fault("kill a planner", kill_planner, 0.0, 2.0),
    Fault("freeze a planner", freeze_planner, 10.0, 10.0),
    Fault("stall a planner", stall_planner, 0.0, 12.0),
    Fault("fill a planner's queue", fill_queue, 8.0, 12.0, counts_from_end=True),
    Fault("kill a worker node", kill_worker, 12.0, 10.0),
    Fault("freeze and thaw a worker node", freeze_worker, 15.0, 10.0),
    Fault("freeze and thaw the head", freeze_head, 6.0, 15.0, counts_from_end=True),
    Fault("kill the head, start it again", kill_head, 5.0, 15.0, counts_from_end=True),
)


def meddle(scene: Scene, each_s: float) -> Undo:
    """Fill the queues of all planners from another driver, with calls that sleep for `each_s` seconds.

    Returns the function that ends it; calls that are running then are not cancelled.
    """
    environment = {
        **os.environ,
        "HOME": str(scene.nodes.folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": scene.nodes.token_file,
        "MEDDLE": f"{scene.nodes.address} {each_s}",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.chaos.faults import meddler; meddler()"],
        cwd=Path(__file__).resolve().parents[2],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()

    def end() -> None:
        process.kill()
        process.wait()
        process.stdout and process.stdout.close()

    return end


def meddler() -> None:
    """Main of that process: reports when the first calls are sent, and replaces calls that end, to all live
    planners."""
    import ray

    from controller.brain.on_ray.ray_start import NAMESPACE

    address, each_s = os.environ["MEDDLE"].split()
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    waiting: list[Any] = []
    pause = Event()
    while True:
        for name in ray.util.list_named_actors():
            with suppress(ValueError, ray.exceptions.RayError):  # the planner has ended, or its queue is full
                actor = ray.get_actor(name)
                waiting += [actor.__ray_call__.remote(_idle, float(each_s)) for _ in range(QUEUED)]
        print("sent", flush=True)  # noqa: T201 - to the process that waits for it
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.1)
            pause.wait(0.05)


def _idle(_: Any, for_s: float) -> None:
    """Sleep inside the planner, in the thread that plans."""
    time.sleep(for_s)


@contextmanager
def brain_server(nodes: RayNodes, token: Path, planners: int = 1) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """(process, address) of a `tonnage brain serve` beside the head."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "cli.main", "brain", "serve", "--listen", address, "--token-file", str(token)]
    command += ["--ray-address", nodes.address, "--ray-token-file", nodes.token_file, "--planners", str(planners)]
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
