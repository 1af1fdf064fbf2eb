"""Real agents that probe each other, on loopback or each in a network namespace, and the controller of them."""

import asyncio
import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

from controller.loops.health.loop import ReportQueue
from controller.loops.health.stream import HealthStream
from controller.loops.power.domain_tree import PoweredNode
from controller.loops.power.loop import PowerLoop, PowerView
from health.probing import Question
from health.remediation.facts import FaultEvidence, NodeKey
from health.verdicts.verdict import Part, Syndrome
from nodeagent.__main__ import clock
from power.rules import PowerRules
from tests.agents.agent_process import command, settings_file
from tests.agents.credentials import Credentials, names_itself
from tests.builders.leading import FixedSource, Leading
from tests.until import until

NODES = ("a", "b", "c1", "c2")
SUBNET = "10.87.3"
CLONE_NEWNET = 0x40000000


@cache
def shown() -> Credentials:
    """For loopback and for the hub."""
    return Credentials(Path(mkdtemp(prefix="tonnage-probes-")), f"{SUBNET}.1")


class Namespaces:
    """One network namespace per node, joined by a bridge in another, `hub`."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._prefix = f"tn{os.getpid() % 100_000}"
        self.nodes = tuple(nodes)

    def name(self, node: str) -> str:
        return f"{self._prefix}{node}"

    def address(self, node: str) -> str:
        return f"{SUBNET}.{10 + self.nodes.index(node)}"

    @property
    def hub(self) -> str:
        return f"{SUBNET}.1"

    def open(self) -> None:
        """Raises CalledProcessError where the machine does not allow namespaces or their shaping."""
        self._do("ip", "netns", "add", self.name("hub"))
        self.run("hub", "ip", "link", "add", "name", "hub0", "type", "bridge")
        self.run("hub", "ip", "addr", "add", f"{self.hub}/24", "dev", "hub0")
        for device in ("hub0", "lo"):
            self.run("hub", "ip", "link", "set", device, "up")
        for node in self.nodes:
            self._do("ip", "netns", "add", self.name(node))
            self.run(
                node,
                "ip",
                "link",
                "add",
                "name",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"to-{node}",
                "netns",
                self.name("hub"),
            )
            self.run("hub", "ip", "link", "set", f"to-{node}", "master", "hub0", "up")
            self.run(node, "ip", "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                self.run(node, "ip", "link", "set", device, "up")
            # All paths alike and far below what a busy core can carry.
            self.run(node, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
            self.run(
                node, "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", *_rate("200mbit")
            )

    def close(self) -> None:
        for node in (*self.nodes, "hub"):
            with suppress(subprocess.CalledProcessError):
                self._do("ip", "netns", "del", self.name(node))

    def mend(self, node: str) -> None:
        """All paths of a node alike, and far below what a busy core can carry."""
        with suppress(subprocess.CalledProcessError):
            self.run(node, "tc", "qdisc", "del", "dev", "eth0", "root")
        self.run(node, "ip", "route", "flush", "type", "blackhole")
        self.run(node, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
        self.run(node, "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", *_rate("200mbit"))

    def slow_nic(self, node: str, rate: str) -> None:
        """Everything that leaves the node, by a token bucket."""
        self.run(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *_rate(rate), "latency", "50ms")

    def slow_link(self, node: str, peer: str, rate: str) -> None:
        """What leaves the node for one peer."""
        self.run(node, "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:2", "htb", *_rate(rate))
        match = ("u32", "match", "ip", "dst", f"{self.address(peer)}/32", "flowid", "1:2")
        self.run(node, "tc", "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "prio", "1", *match)

    def cut_link(self, node: str, peer: str) -> None:
        """A route that swallows what goes to one peer."""
        self.run(node, "ip", "route", "add", "blackhole", f"{self.address(peer)}/32")

    def run(self, node: str, *words: str) -> None:
        self._do("ip", "netns", "exec", self.name(node), *words)

    def _do(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - our own words

    def enter_hub(self) -> None:
        """Moves the calling thread into the hub."""
        with open(f"/run/netns/{self.name('hub')}") as opened:
            if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")


def _rate(rate: str) -> tuple[str, ...]:
    return ("rate", rate, "burst", "32k")


class Controller(threading.Thread):
    """The agents' link and the stream of health as the operator wires them, in a thread of its own."""

    def __init__(self, spaces: Namespaces | None = None) -> None:
        super().__init__(daemon=True)
        self._spaces = spaces
        self.queue, self.stream = ReportQueue(), HealthStream()
        self.stream.may_be_sent_to = lambda _: True  # agents of one machine are on loopback
        self.stream.node_uids = {node: f"key-{node}" for node in NODES}
        self.stream.governed = self.stream.controls = frozenset(NODES)
        self.found: list[FaultEvidence] = []
        self.port = 0
        self.refused: dict[str, int] = {}
        self._end = threading.Event()
        self._numbers = count()
        self._questions: list[tuple[Question, FaultEvidence]] = []

    def run(self) -> None:
        if self._spaces is not None:
            self._spaces.enter_hub()
        asyncio.run(self._serve())

    def stop(self) -> None:
        self._end.set()
        self.join(10.0)

    def ask(self, *suspects: str, syndrome: Syndrome = Syndrome.COMMUNICATION_SLOW) -> None:
        keys = tuple(NodeKey(node, f"key-{node}") for node in suspects)
        now_s = clock()
        self.found, job = [], f"ns/train-{next(self._numbers)}"
        asking = FaultEvidence(job, "run", syndrome, Part.NOTHING, keys, (), now_s - 5, now_s, 0.5, probe="pair probes")
        self._questions.append((Question(suspects), asking))

    @property
    def ready(self) -> frozenset[str]:
        """Nodes whose agents have said where they admit probes."""
        return frozenset(node for node, host in self.stream.hosts.items() if host.probes_at is not None)

    async def _serve(self) -> None:
        source = FixedSource(PowerView({}, {node: PoweredNode() for node in NODES}))
        loop = PowerLoop(source.see, Leading(), names_itself, clock, PowerRules(), [self.queue])
        host = "127.0.0.1" if self._spaces is None else "0.0.0.0"  # noqa: S104
        self.port = await loop.listen(host, 0, shown().serves())
        running = asyncio.create_task(loop.run())
        while not self._end.is_set():
            await asyncio.sleep(0.02)
            now_s = clock()
            for node, body in self.queue.take():
                self.stream.take(node, body, now_s)
            while self._questions:
                self.stream.probing.ask(*self._questions.pop(), {}, now_s)
            self.found += self.stream.judge(now_s)
            self.queue.set_orders(self.stream.probing.orders)
            self.refused = dict(loop.counts.refused)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@contextmanager
def probing_fleet(folder: Path, spaces: Namespaces | None = None, *, probes: bool = True) -> Iterator[Controller]:
    """Four agents as processes, and their controller, once all have said where they admit probes."""
    controller = Controller(spaces)
    controller.start()
    with ExitStack() as stack:
        stack.callback(controller.stop)
        until(lambda: controller.port > 0, "the controller listens", 10.0)
        logs = [
            stack.enter_context(_agent(folder / node, node, controller.port, spaces, probes=probes)) for node in NODES
        ]
        until(lambda: all(b"agent is up" in log.read_bytes() for log in logs), "all agents are up", 60.0)
        if probes:
            until(lambda: controller.ready == frozenset(NODES), "all agents admit probes", 30.0)
        yield controller


@contextmanager
def _agent(folder: Path, node: str, port: int, spaces: Namespaces | None, *, probes: bool) -> Iterator[Path]:
    (folder / "pods").mkdir(parents=True)
    health = {
        "enabled": True,
        "folder": str(folder / "pods"),
        "probes": {"enabled": probes, "port": 0 if spaces is None else 9468},
    }
    host = "127.0.0.1" if spaces is None else spaces.hub
    controller = {"host": host, "port": port, **shown().shown_by(node)}
    settings = settings_file(folder, node=node, backend="none", health=health, controller=controller, period=0.5)
    words = command("run", settings)
    if spaces is not None:
        words = ["ip", "netns", "exec", spaces.name(node), *words]
    log = folder / "log"
    with log.open("wb") as opened:
        process = subprocess.Popen(words, stderr=opened, stdout=opened)  # noqa: S603 - our own
    try:
        yield log
    finally:
        process.kill()
        process.wait()
