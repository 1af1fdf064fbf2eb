"""Background work on a Ray cluster: through the server beside its head, whatever becomes of server, nodes and head."""

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.background.host import BackgroundHost
from controller.background.launcher import RemoteDriver
from controller.background.load_fits import fitted
from tests.chaos.nodes import RayNodes, driver_server, parents, ray_nodes, send, started, tree_of
from tests.ray.test_background_on_ray import results, tasks, until


@dataclass(frozen=True)
class Scene:
    """An operator's host of background work, and what it works with."""

    host: BackgroundHost
    nodes: RayNodes
    server: "subprocess.Popen[bytes]"

    @property
    def driver(self) -> int:
        """Pid of the driver, the server's child that is not the keeper."""
        mine = [pid for pid, parent in parents().items() if parent == self.server.pid]
        return next(pid for pid in mine if b"controller.background.driver" in Path(f"/proc/{pid}/cmdline").read_bytes())


def runs(pid: int) -> bool:
    """Whether a process has not ended, though nobody may have asked yet how it did."""
    path = Path(f"/proc/{pid}/cmdline")
    return path.exists() and path.read_bytes() != b""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    token = tmp_path_factory.mktemp("token") / "driver-token"
    token.write_text(secrets.token_hex(16), encoding="ascii")
    with ray_nodes(workers=2) as nodes, driver_server(nodes, token) as (server, address):
        host = BackgroundHost([RemoteDriver(address, token)])
        host.want(wanted=True)
        try:
            yield Scene(host, nodes, server)
        finally:
            host.close()


def test_fits_are_those_of_a_process_without_ray_bit_by_bit(scene: Scene) -> None:
    asked = tasks(2)
    scene.host.submit(asked)

    found = results(scene.host, 2)

    assert [found[task.digest].value for task in asked] == [fitted(*task.inputs) for task in asked]


def test_a_driver_that_is_killed_is_replaced_by_the_server(scene: Scene) -> None:
    scene.host.submit(tasks(4))
    until(lambda: scene.host.standing.state == "up", "the driver is up")
    os.kill(scene.driver, signal.SIGKILL)

    assert [each.error for each in results(scene.host, 4).values()] == [""] * 4


def test_what_a_lost_node_ran_is_run_again_elsewhere(scene: Scene) -> None:
    scene.host.submit(tasks(6))
    raylet = scene.nodes.raylets()[0]
    until(lambda: any(parent == raylet for parent in parents().values()), "it has a worker")
    for pid in tree_of(raylet):
        send(pid, signal.SIGKILL)

    assert [each.error for each in results(scene.host, 6).values()] == [""] * 6
    scene.nodes.order("kill worker", str(raylet))
    scene.nodes.order("add worker")


def test_a_head_that_comes_back_finds_what_was_open(scene: Scene) -> None:
    scene.host.submit(tasks(4))
    until(lambda: scene.host.standing.state == "up", "the driver is up")
    workers, address = scene.nodes.raylets(), scene.nodes.address
    head, port = scene.nodes.head(), address.rpartition(":")[2]
    for pid in head:
        send(pid, signal.SIGKILL)
    until(lambda: not any(map(runs, head)), "the head has ended")
    (scene.nodes.folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)  # the new head is on another machine
    with started(scene.nodes, "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"):
        # Without tables it is another Ray cluster: workers of before end, and start again as their containers do.
        until(lambda: not any(map(runs, workers)), "the workers of before have ended")
        with started(scene.nodes, f"--address={address}", "--num-cpus=2"):
            assert [each.error for each in results(scene.host, 4).values()] == [""] * 4
