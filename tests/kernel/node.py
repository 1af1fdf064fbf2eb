"""A node in the guest: pods as the kubelet lays them out, and the isolation process beside them. Runs in the guest."""

import contextlib
import functools
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from isolation.cgroupfs import CgroupFs
from isolation.ledger import MIB
from isolation.orders import IsolationReport, Orders, SandboxOrder
from isolation.settings import Settings
from isolation.tree import pod_groups
from nodeagent.sandboxes import process, server
from nodeagent.sandboxes.process import ProcessSettings, serve
from tests.rigs.launcher import run_in
from tonnage import sandbox

ROOT = Path("/sys/fs/cgroup")
FOLDER = Path("/run/node")
SLICE = "agents.slice"
FROZEN = FOLDER / "frozen"
"""Seconds for which containers were frozen when they were taken over, one a line."""
WITHIN_S = 240.0
"""Bound of what never ends; far from what a busy machine takes."""
MEMORY_SHARE = 0.4
"""Of the guest's 1 GiB."""


def uid_of(name: str) -> str:
    return f"{name}-0000-4000-8000-000000000000"


def container_of(name: str) -> str:
    return f"{name.replace('-', '')}{'0' * 40}"[:64]


@dataclass
class Node:
    """Node with its pods."""

    files: CgroupFs
    homes: dict[str, str] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    pid: int = 0
    sequence: int = 0
    orders: dict[str, SandboxOrder] = field(default_factory=dict)
    silent_s: float = server.SILENT_S
    """Time that a silent connection has."""
    pids_per_call: int = Settings().pids_per_call
    slice_group: str = ""
    """Slice of a host without a kubelet."""
    _to: int = -1
    _from: int = -1
    _pending: bytes = b""

    def add_pod(
        self, name: str, *, priority: int = 0, memory_mib: int = 512, uid: str = "", container: str = ""
    ) -> str:
        """A burstable pod with one container; returns the container's group."""
        uid, container = uid or uid_of(name), container or container_of(name)
        home = f"{next(g for g in pod_groups(uid) if 'burstable' in g)}/cri-containerd-{container}.scope"
        parts = home.split("/")
        for length in range(1, len(parts) + 1):
            with contextlib.suppress(FileExistsError):
                self.files.make("/".join(parts[:length]))
            if length < len(parts):
                self.files.write("/".join(parts[:length]), "cgroup.subtree_control", "+cpu +io +memory +pids")
        self.files.write(home, "memory.max", str(memory_mib * MIB))
        self.files.write(home, "memory.oom.group", "1")
        self.homes[name], self.uids[name] = home, uid
        self.orders[uid] = SandboxOrder(f"containerd://{container}", "tenant", priority)
        return home

    def add_scope(self, name: str, *, weight: int = 100) -> None:
        """A scope as `systemd-run --slice=agents.slice --scope` makes it, on a host without a kubelet."""
        self.slice_group, home = SLICE, f"{SLICE}/run-{name}.scope"
        for group in (SLICE, home):
            with contextlib.suppress(FileExistsError):
                self.files.make(group)
            if group == SLICE:
                self.files.write(group, "cgroup.subtree_control", "+cpu +memory +pids")
        self.files.write(home, "cpu.weight", str(weight))
        self.homes[name], self.uids[name] = home, f"run-{name}-scope"

    def start(self) -> None:
        """Starts the isolation process."""
        orders, self._to = os.pipe()
        self._from, reports = os.pipe()
        FOLDER.mkdir(exist_ok=True)
        settings = msgspec.structs.replace(settings_of("n1"), slice_group=self.slice_group)
        self.pid = os.fork()
        if not self.pid:
            os.close(self._to)
            server.SILENT_S = self.silent_s
            process.CgroupFs = TimedFreezes  # type: ignore[misc]
            process.Settings = functools.partial(Settings, pids_per_call=self.pids_per_call)  # type: ignore[misc, assignment]
            try:
                serve(settings, orders, reports)
            except BaseException:  # noqa: BLE001 - shown with the test's own failure
                traceback.print_exc()
            os._exit(0)
        os.close(orders)
        os.close(reports)

    def send_orders(self) -> None:
        self.sequence += 1
        os.write(self._to, msgspec.json.encode(Orders("n1", 1, self.sequence, self.orders)) + b"\n")

    def report(self) -> IsolationReport:
        """The next report."""
        while b"\n" not in self._pending:
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise EOFError("the isolation process ended")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return msgspec.json.decode(line, type=IsolationReport)

    def until(self, claim: Callable[[IsolationReport], bool], within_s: float = WITHIN_S) -> IsolationReport:
        """The first report from now on that meets the claim."""
        self._forget_reports()
        give_up_s = time.monotonic() + within_s
        while not claim(report := self.report()):
            if time.monotonic() > give_up_s:
                raise TimeoutError(str(report))
        return report

    def _forget_reports(self) -> None:
        """Drops what was reported before: it may meet a claim about what came since."""
        while select.select([self._from], [], [], 0)[0] and (chunk := os.read(self._from, 1 << 20)):
            self._pending += chunk
        self._pending = self._pending.rpartition(b"\n")[2]

    def take_all(self) -> IsolationReport:
        """Orders every pod and waits until each is taken over."""
        self.send_orders()
        return self.until(lambda report: set(report.sandboxes) == set(self.orders) and not _troubled(report))

    def kill_agent(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._to)
        os.close(self._from)
        self._pending = b""

    def socket(self, name: str) -> str:
        return str(FOLDER / "sockets" / self.uids[name] / "agent.sock")

    def calls(self, name: str) -> list[str]:
        """Groups of a pod's calls."""
        home = self.homes[name]
        return [f"{home}/{leaf}" for leaf in self.files.children(home) if leaf.startswith("call-")]

    def agent_leaf(self, name: str) -> str:
        """Where a container's processes are: its own group until it is taken over."""
        home = self.homes[name]
        return f"{home}/agent" if "agent" in self.files.children(home) else home


class TimedFreezes(CgroupFs):
    """Notes how long whole containers are frozen."""

    since_s = 0.0

    def write(self, group: str, file: str, value: str) -> None:
        super().write(group, file, value)
        if file == "cgroup.freeze" and "/call-" not in group and not group.endswith(("/agent", "/light")):
            if value == "1":
                self.since_s = time.monotonic()
            else:
                with FROZEN.open("a", encoding="ascii") as noted:
                    noted.write(f"{time.monotonic() - self.since_s}\n")


def settings_of(name: str) -> ProcessSettings:
    return ProcessSettings(name, str(ROOT), str(FOLDER / "sockets"), str(FOLDER / "record"), MEMORY_SHARE)


def _troubled(report: IsolationReport) -> bool:
    return any(each.trouble for each in report.sandboxes.values())


@contextlib.contextmanager
def running_node(
    *pods: str, silent_s: float = server.SILENT_S, pids_per_call: int = Settings().pids_per_call
) -> Iterator[Node]:
    """Node whose pods are all taken over, with an agent that sleeps in each."""
    with node() as made:
        made.silent_s, made.pids_per_call = silent_s, pids_per_call
        for name in pods:
            made.add_pod(name)
            run_in(made.files.folder(made.homes[name]), _sleep)
        made.start()
        made.take_all()
        yield made


@contextlib.contextmanager
def node() -> Iterator[Node]:
    files = CgroupFs(ROOT)
    made = Node(files)
    try:
        yield made
    finally:
        if made.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError, OSError):
                made.kill_agent()
        _clear(files)


def _clear(files: CgroupFs) -> None:
    for top in {"kubepods.slice", SLICE} & set(files.children("")):
        files.write(top, "cgroup.kill", "1")
        while "populated 1" in files.read(top, "cgroup.events"):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.01)
        _remove(files, top)
    for path in sorted(FOLDER.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    files.close()


def _remove(files: CgroupFs, group: str) -> None:
    for child in files.children(group):
        _remove(files, f"{group}/{child}")
    files.remove(group)


def _sleep() -> int:
    time.sleep(600)
    return 0


def in_pod(made: Node, name: str, program: Callable[[], Any], *, within_s: float = WITHIN_S) -> Any:
    """Result of a function that runs as a process of the pod, and has the pod's socket."""
    return result_of(begin_in_pod(made, name, program), within_s)


def begin_in_pod(made: Node, name: str, program: Callable[[], Any]) -> tuple[int, Path]:
    FOLDER.mkdir(exist_ok=True)
    answer = FOLDER / f"answer-{time.monotonic_ns()}"

    def child() -> int:
        os.setsid()
        os.environ[sandbox.SOCKET_VARIABLE] = made.socket(name)
        try:
            value = {"value": program()}
        except BaseException as error:  # noqa: BLE001 - reported to the test
            value = {"error": f"{type(error).__name__}: {error}"}
        answer.with_suffix(".new").write_text(json.dumps(value), encoding="utf-8")
        answer.with_suffix(".new").rename(answer)
        return 0

    pid, pidfd = run_in(made.files.folder(made.agent_leaf(name)), child)
    os.close(pidfd)
    return pid, answer


def result_of(begun: tuple[int, Path], within_s: float = WITHIN_S) -> Any:
    pid, answer = begun
    give_up_s = time.monotonic() + within_s
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > give_up_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise TimeoutError("a program in a pod")
        time.sleep(0.01)
    result = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in result:
        raise RuntimeError(result["error"])
    return result["value"]


def waiting_for(file: Path) -> list[str]:
    """Command that ends, and says so, when the file is there."""
    return ["/bin/sh", "-c", f"until [ -e {file} ]; do sleep 0.02; done; echo done"]


def hog(mib: int, hold_s: float = 0.0) -> list[str]:
    """Command that takes so much memory, and holds it for a while."""
    flags = "flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS|mmap.MAP_POPULATE"
    source = f"import mmap,time; m=mmap.mmap(-1,{mib}<<20,{flags}); time.sleep({hold_s})"
    return [sys.executable, "-S", "-c", source]
