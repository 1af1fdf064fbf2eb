"""Process that isolates tool calls on a node: `python -m nodeagent.sandboxes.process SETTINGS`.

It is a process of its own, so that neither an agent's packets nor a slow disk can delay the power leases of the same
node. Orders come on its standard input and reports leave on its standard output, one JSON object a line; it ends when
its input does.
"""

import asyncio
import ctypes
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex

import msgspec
import structlog

from cluster.errors import UNREADABLE
from isolation.cgroupfs import CgroupFs, capability_of
from isolation.ledger import Sandbox
from isolation.orders import ORDERS, REPORT, IsolationReport, Orders, SandboxOrder, SandboxReport
from isolation.settings import Settings
from isolation.tree import AGENT, CALL_PREFIX, LIGHT, Capability, CgroupFiles, container_group, is_uid, pod_groups
from nodeagent.logs import configure_logs
from nodeagent.sandboxes.enforcer import Enforcer, lower_own_risk
from nodeagent.sandboxes.server import SandboxServer
from power.leases.messages import encoded_text, kind_in, text_in

log = structlog.get_logger(__name__)
MOST_SANDBOXES = 1024
"""Sandboxes of one node: nine times the kubelet's limit of pods."""


class SandboxPods:
    """Adopts what is ordered, and releases the rest."""

    def __init__(
        self, enforcer: Enforcer, files: CgroupFiles, server: SandboxServer, below: str = "", slice_group: str = ""
    ) -> None:
        self._enforcer, self._files, self._server, self._below = enforcer, files, server, below
        self._slice = slice_group
        self._orders: dict[str, SandboxOrder] = {}
        """Those that are carried out."""
        self._trouble: dict[str, str] = {}

    def follow(self, orders: Orders) -> None:
        """Brings the node to the orders. Cheap where nothing changed; what fails is tried again the next time."""
        wanted = dict(list(orders.sandboxes.items())[:MOST_SANDBOXES])
        there = self._enforcer.tree.homes
        for uid in [uid for uid in self._orders if uid not in wanted or uid not in there]:
            self._drop(uid)
        self._trouble = {uid: why for uid, why in self._trouble.items() if uid in wanted}
        for uid, order in wanted.items():
            before = self._orders.get(uid)
            if before == order:
                continue
            if before is not None and before.container_id != order.container_id:
                self._drop(uid)
                before = None
            if before is None:
                self._take(uid, order)
                continue
            with suppress(OSError):  # its container just ended, which the enforcer notices: the next time drops it
                self._enforcer.change(self._sandbox(uid, order, there[uid]))
                self._orders[uid] = order

    def report(self, node: str, life: str, can: Capability) -> IsolationReport:
        state = self._enforcer.state
        sandboxes: dict[str, SandboxReport] = {}
        for uid in self._orders:
            sandbox = state.ledger.sandboxes.get(uid)
            calls = [call for call in state.calls.values() if call.request.sandbox == uid]
            kept = [each.lease_bytes for each in state.ledger.reservations.values() if each.sandbox == uid]
            pod = self._server.pods.get(uid)
            blocked = pod is not None and pod.listener is None
            sandboxes[uid] = SandboxReport(
                agent_bytes=sandbox.agent_bytes if sandbox else 0,
                calls_bytes=sum(kept),
                running=len(calls),
                queued=sum(asked.sandbox == uid for asked in state.queue),
                frozen=sum(call.frozen is not None for call in calls),
                happened={f"{what}/{reason}": count for (what, reason), count in pod.counts.items()} if pod else {},
                trouble="its socket cannot be made: its folder is blocked" if blocked else "",
            )
        sandboxes |= {uid: SandboxReport(trouble=why) for uid, why in self._trouble.items()}
        budget_bytes, reserved_bytes = state.ledger.budget_bytes, state.ledger.reserved_bytes()
        return IsolationReport(node, life, can.level, can.reason, budget_bytes, reserved_bytes, sandboxes)

    def _take(self, uid: str, order: SandboxOrder) -> None:
        home = self._home(uid, order.container_id)
        if home is None:
            self._trouble[uid] = "its container's cgroup is not found"
            return
        try:
            self._enforcer.adopt(self._sandbox(uid, order, home), home)
        except OSError as error:
            self._enforcer.forget(uid)
            if self._trouble.get(uid) != str(error):
                log.warning("a container's cgroup cannot be taken over", pod=uid, why=str(error))
            self._trouble[uid] = str(error)
            return
        self._server.open(uid, order.tenant)
        self._orders[uid] = order
        self._trouble.pop(uid, None)
        log.info("sandbox taken over", pod=uid, priority=order.priority)

    def _drop(self, uid: str) -> None:
        del self._orders[uid]
        self._server.close(uid)
        if uid in self._enforcer.tree.homes:
            self._enforcer.release(uid)

    def _home(self, uid: str, container_id: str) -> str | None:
        """Group of the pod's container; None where there is none yet, or any more."""
        if not is_uid(uid):
            return None
        if self._slice:
            return f"{self._slice}/{container_id}"
        for group in pod_groups(uid, self._below):
            with suppress(OSError):
                found = container_group(container_id, self._files.children(group))
                return None if found is None else f"{group}/{found}"
        return None

    def _sandbox(self, uid: str, order: SandboxOrder, home: str) -> Sandbox:
        """The order in the ledger's words, within the container's limit and the node's budget."""
        limit = self._files.read(home, "memory.max").strip()
        most = self._enforcer.state.ledger.budget_bytes
        bounds = [most, *([] if limit == "max" else [int(limit)])]
        if order.budget_bytes is not None:
            bounds.append(order.budget_bytes)
        sandbox = Sandbox(uid, min(bounds), order.priority, 0, order.agent_bytes)
        return replace(sandbox, guaranteed_bytes=min(order.guaranteed_bytes, sandbox.budget_bytes))


REPORT_EVERY_S = 1.0
CLONE_NEWCGROUP = 0x02000000
SILENT_S = 10.0
"""Time without a report, of which one is due each second, after which the process is killed: what it left frozen goes
on at the next start."""
PAUSE_S = 0.3
"""Pause before a restart: what was left frozen has to go on within a second."""
LONGEST_LINE = 4 << 20
"""Bytes of one report: 1,024 sandboxes have 300 KiB."""
STOP_WITHIN_S = 5.0
DEPTH = 5
"""Folders between the kubelet's root and a container: classes, pod, and one to spare."""
ROOTS = ("kubepods.slice", "kubepods")


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
    slice_group: str = ""
    """Group each child of which is a sandbox, as systemd's scopes in a slice are; empty: the pods that are ordered."""


def serve(settings: ProcessSettings, orders: int, reports: int) -> None:
    """Isolates until the descriptor of orders ends."""
    life = os.urandom(8).hex()
    joined = bool(settings.slice_group) or join_host_cgroups()
    can = capability_of(Path(settings.cgroups) / settings.slice_group)
    if can.level == "full" and not joined:
        can = Capability("observe", "the node's cgroup namespace cannot be joined: it takes SYS_ADMIN and SYS_PTRACE")
    log.info("isolation starts", level=can.level, why=can.reason)
    os.set_blocking(orders, False)
    while can.level != "full":  # the pods have no socket, and their clients run commands plainly
        with suppress(BlockingIOError):
            if not os.read(orders, 1 << 16):
                return
        _send(reports, IsolationReport(settings.node, life, can.level, can.reason))
        time.sleep(REPORT_EVERY_S)
    with suppress(OSError):  # without SYS_RESOURCE, the pod's own value holds
        lower_own_risk()
    files = CgroupFs(Path(settings.cgroups))
    if thawed := thaw_orphans(files, settings.below, (settings.slice_group,) if settings.slice_group else ROOTS):
        log.warning("tool calls of an earlier process thawed", calls=len(thawed))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    enforcer = Enforcer(files, round(memory_bytes * settings.memory_share), Settings(), time.monotonic)
    sockets, record = Path(settings.sockets), Path(settings.record)
    sockets.mkdir(parents=True, exist_ok=True)
    server = SandboxServer(enforcer, sockets, time.monotonic, partial(token_hex, 8))
    pods = SandboxPods(enforcer, files, server, settings.below, settings.slice_group)
    known = recorded(record, settings.node)
    pods.follow(known)
    enforcer.watch(orders)
    pending, report_at_s = b"", 0.0
    while True:
        is_ended, pending, newest = received(orders, pending, known)
        if is_ended:
            enforcer.loosen()
            return
        if newest is not known:
            known = newest
            keep(record, known)
            report_at_s = 0.0
        if time.monotonic() >= report_at_s:
            if settings.slice_group:
                known = replace(known, sandboxes=scopes_in(files, settings.slice_group))
            pods.follow(known)
            report_at_s = time.monotonic() + REPORT_EVERY_S
            _send(reports, pods.report(settings.node, life, can))
        server.turn(max(0.0, report_at_s - time.monotonic()))


def scopes_in(files: CgroupFiles, slice_group: str) -> dict[str, SandboxOrder]:
    """Orders of a plain host: the scopes of a slice, their MemoryLow= the guarantee and CPUWeight= the priority."""
    found = {}
    for child in files.children(slice_group):
        home = f"{slice_group}/{child}"
        with suppress(OSError, ValueError):
            if "populated 1" in files.read(home, "cgroup.events"):
                guaranteed, weight = (int(files.read(home, file)) for file in ("memory.low", "cpu.weight"))
                name = re.sub("[^a-z0-9]", "-", child.lower()).strip("-")[:63]
                found[name] = SandboxOrder(child, "host", weight, guaranteed_bytes=guaranteed)
    return found


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


def _send(reports: int, report: IsolationReport) -> None:
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


def thaw_orphans(files: CgroupFiles, below: str = "", roots: Sequence[str] = ROOTS) -> tuple[str, ...]:
    """Thaws every call and every adopted container that an earlier process left frozen. Returns their groups."""
    thawed = []
    for root in roots:
        for home in _adopted(files, f"{below}/{root}".strip("/"), DEPTH):
            calls = [f"{home}/{child}" for child in files.children(home) if child.startswith(CALL_PREFIX)]
            for group in (home, *calls):
                with suppress(OSError):
                    if files.read(group, "cgroup.freeze").strip() == "1":
                        files.write(group, "cgroup.freeze", "0")
                        thawed.append(group)
    return tuple(thawed)


def _adopted(files: CgroupFiles, group: str, depth: int) -> Iterator[str]:
    """Containers that were adopted: they have a leaf for the agent and one for light calls."""
    children: tuple[str, ...] = ()
    with suppress(OSError):
        children = files.children(group)
    if AGENT in children and LIGHT in children:
        yield group
    elif depth:
        for child in children:
            yield from _adopted(files, f"{group}/{child}", depth - 1)


class SandboxSupervisor:
    """The isolation process of one node, for as long as the agent runs."""

    def __init__(
        self,
        settings: ProcessSettings,
        send: Callable[[bytes], None],
        command: Sequence[str] = (sys.executable, "-m", "nodeagent.sandboxes.process"),
        silent_s: float = SILENT_S,
    ) -> None:
        """send: sends to the controller, or drops."""
        self._settings, self._send = settings, send
        self._command = (*command, msgspec.json.encode(settings).decode())
        self._silent_s = silent_s
        self._process: asyncio.subprocess.Process | None = None
        self._orders: bytes | None = None

    def receive(self, travelled: bytes) -> bool:
        """Whether a message of the controller was one of orders, which then go to the process."""
        if kind_in(travelled) != ORDERS:
            return False
        try:
            made = msgspec.json.decode(text_in(travelled), type=Orders)
        except UNREADABLE as error:
            log.warning("orders for sandboxes cannot be read", why=str(error))
            return True
        if made.node == self._settings.node:
            self._orders = msgspec.json.encode(made) + b"\n"
            self._hand_over()
        return True

    async def keep_up(self) -> None:
        """Runs the process for ever; one that ends is started again."""
        while True:
            try:
                await self._run()
            except TimeoutError:
                log.warning("the isolation process is silent and is started again")
            except OSError as error:
                log.warning("the isolation process cannot be started", why=str(error))
            except UNREADABLE as error:  # it was killed in the middle of a report
                log.warning("the isolation process ended within a report and is started again", why=str(error)[:200])
            await asyncio.sleep(PAUSE_S)

    async def stop(self) -> None:
        """Ends the process in order: it lets frozen calls go on, since nobody would decide about them."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_S):
                await process.wait()

    async def _run(self) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=LONGEST_LINE)
        self._process = process
        try:
            self._hand_over()
            assert process.stdout is not None  # noqa: S101 - made with a pipe
            while line := await asyncio.wait_for(process.stdout.readline(), self._silent_s):
                msgspec.json.decode(line, type=IsolationReport)  # a process that is killed may leave half of one
                self._send(encoded_text(REPORT, line.rstrip()))
            log.warning("the isolation process ended and is started again", code=await process.wait())
        finally:
            self._process = None
            if process.returncode is None:
                process.kill()

    def _hand_over(self) -> None:
        if self._orders is not None and self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(self._orders)


def main(argv: Sequence[str]) -> None:
    """Entry point of the process."""
    configure_logs()
    serve(msgspec.json.decode(argv[1], type=ProcessSettings), 0, 1)


if __name__ == "__main__":
    main(sys.argv)
