"""A power loop and its agents as processes, and what their leases and limits allowed when."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agents.agent_process import command, settings_file
from tests.agents.credentials import Credentials
from tests.agents.power_speakers import WANTED_W
from tests.controlplane.processes import cpu_s, resident_mb

Change = tuple[float, float]
"""(time, total power that the devices of a node may draw from then on, watts)."""
Order = tuple[float, str, float]
"""(time, device, watts) of a limit that an agent set."""
NEVER = float("inf")


def orders_of(path: Path) -> tuple[Order, ...]:
    """All limits of an agent's simulated devices, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple((each["at_s"], each["uuid"], each["limit_w"]) for each in map(json.loads, lines))


def allowed_by(orders: Iterable[Order], highest_w: Mapping[str, float]) -> tuple[Change, ...]:
    """Allowed power of a node as its agent set it. highest_w: limit of each device before the first order, watts."""
    limit_w, found = dict(highest_w), []
    for at_s, uuid, watts in orders:
        limit_w[uuid] = watts
        found.append((at_s, sum(limit_w.values())))
    return tuple(found)


def answered(
    changes: Mapping[str, Sequence[Change]], highest_w: float, fits_w: float, breach_at_s: float
) -> tuple[float, float]:
    """Seconds from the breach to the first reduction of a node's power, and until all nodes together fit the budget.

    changes: by node, for all nodes that can be reduced. highest_w: limit of each node before the first order, watts.
    """
    now_w = dict.fromkeys(changes, highest_w)
    first_s = enough_s = NEVER
    for at_s, node, watts in sorted((at_s, node, watts) for node, each in changes.items() for at_s, watts in each):
        is_lower, now_w[node] = watts < now_w[node], watts
        if at_s <= breach_at_s:
            continue
        if is_lower:
            first_s = min(first_s, at_s - breach_at_s)
        if sum(now_w.values()) <= fits_w:
            enough_s = min(enough_s, at_s - breach_at_s)
    return first_s, enough_s


def lowered_after(orders: Iterable[Order], at_s: float) -> float:
    """Seconds until the first limit was lowered; NEVER if none was."""
    held: dict[str, float] = {}
    for order_s, uuid, limit_w in orders:
        if order_s >= at_s and limit_w < held.get(uuid, 0.0) - 1.0:
            return order_s - at_s
        held[uuid] = limit_w
    return NEVER


def at_floor_after(orders: Iterable[Order], floor_w: float, at_s: float) -> float:
    """Seconds until every device stayed at its floor; NEVER if one did not."""
    last: dict[str, tuple[float, float]] = {}
    for order_s, uuid, limit_w in orders:
        if uuid not in last or abs(last[uuid][1] - limit_w) > 1.0:
            last[uuid] = (order_s, limit_w)
    return max(
        (order_s - at_s if limit_w <= floor_w + 1.0 else NEVER for order_s, limit_w in last.values()), default=NEVER
    )


PERIOD_S, LEASE_S = 0.5, 10.0
DISTRUST_S = 8.0
"""Duration of distrust, seconds, instead of an hour, so that a rack has recovered before its next breach."""


@contextmanager
def controller(shown: Path, racks: int, gpus: int) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The power loop as a process, and its port."""
    command = [sys.executable, "-m", "tests.agents.power_speakers", str(shown), str(racks), str(gpus), str(DISTRUST_S)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def agent_processes(
    folder: Path, nodes: Sequence[str], port: int, gpus: int
) -> Iterator[Mapping[str, "subprocess.Popen[bytes]"]]:
    """Agents with simulated devices that want more than they get, by node."""
    running = {}
    try:
        for node in nodes:
            here = folder / node
            here.mkdir()
            wants(here, WANTED_W)
            settings = settings_file(
                here,
                node=node,
                backend="pretend",
                pretend={"devices": gpus},
                controller={"host": "127.0.0.1", "port": port, **Credentials(folder / "shown").shown_by(node)},
                period=PERIOD_S,
            )
            running[node] = subprocess.Popen(command("run", settings), stderr=subprocess.DEVNULL)  # noqa: S603 - our own
        yield running
    finally:
        for process in running.values():
            process.kill()
        for process in running.values():
            process.wait()


def wants(folder: Path, watts: float, *, blind: bool = False) -> None:
    """Set the draw of an agent's devices from now on. watts: demand of each. blind: unreadable devices."""
    scratch = folder / ".script.new"
    scratch.write_text(json.dumps({"*": {"wants_w": watts, "blind": blind}}), encoding="utf-8")
    scratch.replace(folder / "script.json")


def used(processes: Iterable["subprocess.Popen[Any]"]) -> tuple[float, float]:
    """Sum of (CPU seconds so far, resident MB) of processes, each with its children (an agent's devices)."""
    found = [0.0, 0.0]
    for process in processes:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        for pid in (process.pid, *map(int, children)):
            found[0] += cpu_s(pid)
            found[1] += resident_mb(pid)
    return found[0], found[1]
