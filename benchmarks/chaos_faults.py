"""What can happen to the brain: each fault with how it is done, how it ends, and how soon it should be over."""

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

from benchmarks.chaos_nodes import RayNodes, parents, send, tree_of

Undo = Callable[[], None]

QUEUED = 8
"""Calls that somebody else sends to a planner at once."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults are done to."""

    nodes: RayNodes
    server: "subprocess.Popen[bytes]"
    """`tonnage brain serve`."""

    @property
    def driver(self) -> int:
        """The brain process: the server's child."""
        return next(pid for pid, parent in parents().items() if parent == self.server.pid)

    @property
    def planner(self) -> int:
        """The process of the planner, the youngest where there are several."""
        found = [pid for raylet in self.nodes.raylets() for pid in tree_of(raylet) if _is_planner(pid)]
        return max(found, key=_born)

    @property
    def planners_node(self) -> int:
        """The raylet of the node that the planner runs on."""
        return parents()[self.planner]


def _is_planner(pid: int) -> bool:
    """Ray names a worker's process for the actor that it holds."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::PlannerActor")
    return False


def _born(pid: int) -> int:
    """When the process started, in ticks since the machine did."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    do: Callable[[Scene], Undo]
    """Does it, and gives back what ends it."""
    hold_s: float
    """How long until it is ended."""
    within_s: float
    """From when it was done, or from its end where only that can mend it: the brain plans again."""
    counts_from_end: bool = False


def nothing() -> None:
    """The end of a fault that needs none."""


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
        # A node that was given up ends by itself when it thaws. It has time to do harm before.
        pause = Event()
        for _ in range(100):
            if frozen[0] not in parents():
                break
            pause.wait(0.1)
        _replace(scene, frozen[0])

    return thaw


def _replace(scene: Scene, raylet: int) -> None:
    """Another worker in place of one that has ended, as a kubelet would see to."""
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
    """A call that does not come back: what a bug in a solver would be."""
    return meddle(scene, 600.0)


def fill_queue(scene: Scene) -> Undo:
    """Another driver keeps as many calls waiting as the planner takes, each a second of work."""
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
    """Have another driver of the cluster fill the queues of all planners with calls that do nothing for so long.

    What comes back ends it; calls that run then run on.
    """
    environment = {
        **os.environ,
        "HOME": str(scene.nodes.folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": scene.nodes.token_file,
        "MEDDLE": f"{scene.nodes.address} {each_s}",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", "from benchmarks.chaos_faults import meddler; meddler()"],
        cwd=Path(__file__).resolve().parents[1],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    process.stdout.readline()

    def end() -> None:
        process.kill()
        process.wait()
        process.stdout and process.stdout.close()

    return end


def meddler() -> None:
    """In that process: says when the first calls are sent. Calls that end are followed by others, to whom is there."""
    import ray

    from controller.brain.on_ray.ray_session import NAMESPACE

    address, each_s = os.environ["MEDDLE"].split()
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    waiting: list[Any] = []
    pause = Event()
    while True:
        for name in ray.util.list_named_actors():
            with suppress(ValueError, ray.exceptions.RayError):  # it has ended since, or takes no more
                actor = ray.get_actor(name)
                waiting += [actor.__ray_call__.remote(_idle, float(each_s)) for _ in range(QUEUED)]
        print("sent", flush=True)  # noqa: T201 - to the process that waits for it
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.1)
            pause.wait(0.05)


def _idle(_: Any, for_s: float) -> None:
    """Inside the planner, in the thread that plans."""
    time.sleep(for_s)


@contextmanager
def brain_server(nodes: RayNodes, token: Path, planners: int = 1) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """`tonnage brain serve` beside the head, and where it listens."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "cli.main", "brain", "serve", "--listen", address, "--token-file", str(token)]
    command += ["--ray-address", nodes.address, "--ray-token-file", nodes.token_file, "--planners", str(planners)]
    with (nodes.folder / "server.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1], stderr=log)  # noqa: S603
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
