"""Process that isolates tool calls on a node: `python -m nodeagent.sandboxes.process SETTINGS`.

It is a process of its own, so that neither an agent's packets nor a slow disk can delay the power leases of the same
node. Orders come on its standard input and reports leave on its standard output, one JSON object a line; it ends when
its input does.
"""

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from isolation.cgroupfs import CgroupFs, host_facts
from isolation.orders import NodeReport, Orders
from isolation.settings import Settings
from isolation.tree import Capability, capability_of
from nodeagent.logs import configure_logs
from nodeagent.sandboxes.enforcer import Enforcer, lower_own_risk
from nodeagent.sandboxes.orphans import thaw_orphans
from nodeagent.sandboxes.reception import Reception, new_call_name
from nodeagent.sandboxes.roster import Roster

log = structlog.get_logger(__name__)
REPORT_EVERY_S = 1.0
CLONE_NEWCGROUP = 0x02000000


class ProcessSettings(msgspec.Struct, frozen=True):
    """What the process is started with."""

    node: str
    cgroups: str
    """Folder of the node's cgroup tree."""
    sockets: str
    """Folder with the pods' folders."""
    record: str
    """File with the last orders, for a restart while no controller can be reached."""
    memory_share: float
    """Part of the node's memory that all sandboxes may hold together."""
    below: str = ""
    """Group below which the kubelet keeps its own, as in kind."""


def main(argv: Sequence[str]) -> None:
    configure_logs()
    serve(msgspec.json.decode(argv[1], type=ProcessSettings), 0, 1)


def serve(settings: ProcessSettings, orders: int, reports: int) -> None:
    """Isolates until the descriptor of orders ends."""
    root = Path(settings.cgroups)
    life = os.urandom(8).hex()
    joined = join_host_cgroups()
    can = capability_of(host_facts(root))
    if can.level == "full" and not joined:
        can = Capability("observe", "the node's cgroup namespace cannot be joined: it takes SYS_ADMIN and SYS_PTRACE")
    log.info("isolation starts", level=can.level, why=can.reason)
    if can.level == "full":
        isolate(settings, life, can, orders, reports)
    else:
        stand_by(settings, life, can, orders, reports)


def isolate(settings: ProcessSettings, life: str, can: Capability, orders: int, reports: int) -> None:
    with suppress(OSError):  # without SYS_RESOURCE, the pod's own value holds
        lower_own_risk()
    files = CgroupFs(Path(settings.cgroups))
    if thawed := thaw_orphans(files, settings.below):
        log.warning("tool calls of an earlier process thawed", calls=len(thawed))
    budget_bytes = round(memory_bytes() * settings.memory_share)
    enforcer = Enforcer(files, budget_bytes, Settings(swap=has_swap()), time.monotonic)
    sockets = Path(settings.sockets)
    sockets.mkdir(parents=True, exist_ok=True)
    reception = Reception(enforcer, sockets, time.monotonic, new_call_name)
    roster = Roster(enforcer, files, reception, settings.below)
    known = recorded(Path(settings.record), settings.node)
    roster.follow(known)
    os.set_blocking(orders, False)
    reception.listen_to(orders)
    pending, report_at_s = b"", 0.0
    while True:
        is_ended, pending, newest = received(orders, pending, known)
        if is_ended:
            enforcer.loosen()
            return
        if newest is not known:
            known = newest
            keep(Path(settings.record), known)
            report_at_s = 0.0
        if time.monotonic() >= report_at_s:
            roster.follow(known)
            report_at_s = time.monotonic() + REPORT_EVERY_S
            said(reports, roster.report(settings.node, life, can))
        reception.turn(max(0.0, report_at_s - time.monotonic()))


def stand_by(settings: ProcessSettings, life: str, can: Capability, orders: int, reports: int) -> None:
    """States why nothing is isolated; the pods have no socket, and their clients run commands plainly."""
    os.set_blocking(orders, False)
    while True:
        with suppress(BlockingIOError):
            if not os.read(orders, 1 << 16):
                return
        said(reports, NodeReport(settings.node, life, can.level, can.reason))
        time.sleep(REPORT_EVERY_S)


def received(orders: int, pending: bytes, known: Orders) -> tuple[bool, bytes, Orders]:
    """Whether the input ended, its rest, and the newest orders."""
    with suppress(BlockingIOError):
        chunk = os.read(orders, 1 << 20)
        if not chunk:
            return True, b"", known
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            made = msgspec.json.decode(line, type=Orders)
            if made.is_newer_than(known):
                known = made
    return False, pending, known


def said(reports: int, report: NodeReport) -> None:
    os.write(reports, msgspec.json.encode(report) + b"\n")


def recorded(record: Path, node: str) -> Orders:
    """The last orders; none where there is no record, or it is another node's."""
    none = Orders(node, -1, -1)
    with suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(record.read_bytes(), type=Orders)
        return found if found.node == node else none
    return none


def keep(record: Path, orders: Orders) -> None:
    """Writes the record whole, or not at all. A disk that refuses costs the next restart its orders, no more."""
    try:
        new = record.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(orders))
        new.replace(record)
    except OSError as error:
        log.warning("the sandboxes' record cannot be written", why=str(error))


def join_host_cgroups(init: Path = Path("/proc/1/ns/cgroup")) -> bool:
    """Whether this process is in the node's own cgroup namespace: a container's may neither see nor move others."""
    try:
        if init.stat().st_ino == Path("/proc/self/ns/cgroup").stat().st_ino:
            return True
        descriptor = os.open(init, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return int(ctypes.CDLL(None).setns(descriptor, CLONE_NEWCGROUP)) == 0
    finally:
        os.close(descriptor)


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def has_swap(swaps: Path = Path("/proc/swaps")) -> bool:
    with suppress(OSError):
        return len(swaps.read_text(encoding="ascii").splitlines()) > 1
    return False


if __name__ == "__main__":
    main(sys.argv)
