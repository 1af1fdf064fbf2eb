"""A node in the guest whose isolation process outlives the calls from outside: for tests with a real control plane.

Each function is a call of its own, in a process of its own; what lasts is the cgroup tree, the isolation process, and
two pipes with names.
"""

import contextlib
import os
import time
from typing import Any

from isolation.cgroupfs import CgroupFs
from nodeagent.sandboxes.process import serve
from tests.kernel.node import FOLDER, ROOT, Node, hog, in_pod, settings_of
from tests.kernel.test_sandbox_client import run
from tests.rigs.launcher import run_in

ORDERS, REPORTS = FOLDER / "orders", FOLDER / "reports"
POD = "pod"


def begin(name: str, uid: str, container: str) -> None:
    """Lays out a pod with an agent in it, and starts the node's isolation process."""
    made = _node(uid, container)
    run_in(made.files.folder(made.homes[POD]), _sleep)
    FOLDER.mkdir(exist_ok=True)
    for pipe in (ORDERS, REPORTS):
        os.mkfifo(pipe)
    if not os.fork():
        with contextlib.suppress(BaseException):
            # Open for both ways, so that a pipe does not end with each call that used it.
            serve(settings_of(name), os.open(ORDERS, os.O_RDWR), os.open(REPORTS, os.O_RDWR))
        os._exit(0)


def exchange(orders: str) -> str:
    """Hands over orders, where there are any, and returns the reports since the last call, one a line."""
    descriptor = os.open(ORDERS, os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, orders.encode())
    os.close(descriptor)
    descriptor = os.open(REPORTS, os.O_RDWR | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 1 << 16).decode()
    except BlockingIOError:
        return ""
    finally:
        os.close(descriptor)


def outgrow(uid: str, container: str) -> dict[str, Any]:
    """A tool call that takes far more than it declared."""
    found: dict[str, Any] = in_pod(_node(uid, container), POD, lambda: run(hog(480, 5), "64Mi"))
    return found


def _node(uid: str, container: str) -> Node:
    made = Node(CgroupFs(ROOT))
    made.add_pod(POD, uid=uid, container=container)
    return made


def _sleep() -> int:
    time.sleep(600)
    return 0
