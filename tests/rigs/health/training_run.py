"""A training job of thousands of GPUs on nodes that fail in bursts: what it gets done, and what it loses to what."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from cluster.arrays import FloatArray
from health.remediation.advice import CLUSTER

DAY_S = 86_400.0


class NodeFaultKind(StrEnum):
    """Kind of a fault, as a job sees it."""

    CRASH = "crash"
    HANG = "hang"
    LINK_HANG = "hang of a link"
    NODE_LOST = "node lost"
    SWITCH = "switch"
    PROGRAM = "program error"
    SLOW_COMPUTE = "slow compute"
    SLOW_NIC = "slow NIC"
    SLOW_LINK = "slow link"


SLOW = (NodeFaultKind.SLOW_COMPUTE, NodeFaultKind.SLOW_NIC, NodeFaultKind.SLOW_LINK)
STOPS_PER_1000_NODE_DAYS = {
    NodeFaultKind.CRASH: 2.3,
    NodeFaultKind.HANG: 0.6,
    NodeFaultKind.LINK_HANG: 0.4,
    NodeFaultKind.NODE_LOST: 0.5,
    NodeFaultKind.SWITCH: 0.25,
    NodeFaultKind.PROGRAM: 0.15,
}
"""Together 4.2, the rate of the StepFun trace (584 faults of 400 nodes in 348.8 days) and near Llama 3's 3.8; the split
into kinds is chosen after published mixes."""
SLOW_PER_1000_NODE_DAYS = {NodeFaultKind.SLOW_COMPUTE: 0.6, NodeFaultKind.SLOW_NIC: 0.4, NodeFaultKind.SLOW_LINK: 0.5}
SLOW_MEAN_S = {NodeFaultKind.SLOW_COMPUTE: 600.0, NodeFaultKind.SLOW_NIC: 1440.0, NodeFaultKind.SLOW_LINK: 1440.0}
"""Mean durations of compute and communication fail-slow (Greyhound, ATC'25); the tail reaches about 10 h."""
SLOW_SIGMA = 1.5
LEMON_SHAPE = 0.35
"""Shape of the gamma distribution of hazards over nodes: a tenth of the StepFun trace's nodes has 41 % of faults."""
REPAIR_MU_H, REPAIR_SIGMA = 3.0, 2.1
"""Lognormal repair times of the StepFun trace, hours: median 20 h, mean 133 h as measured there."""
REPAIR_MOST_H = 2000.0
"""Its 99th percentile: what takes longer is replaced by another node."""
LASTING = {
    NodeFaultKind.CRASH: 0.8,
    NodeFaultKind.HANG: 0.8,
    NodeFaultKind.LINK_HANG: 0.7,
    NodeFaultKind.NODE_LOST: 1.0,
    NodeFaultKind.SWITCH: 1.0,
    NodeFaultKind.PROGRAM: 0.0,
}
"""Probability that a restart on the same nodes fails again; 82.5 % of crashes are local to a node (C4, HPCA'25)."""
SWITCH_NODES = 3
"""Nodes that a switch's fault cuts off."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """One fault of one node."""

    at_s: float
    node: int
    kind: NodeFaultKind
    repair_s: float
    """Time until the node is sound again; 0 for what a restart mends."""
    slow_share: float = 0.0
    for_s: float = 0.0
    """How long a slow-down lasts by itself."""
    visible: bool = False
    """Whether the node agent sees it too: a GPU error, NIC counters, a node that is not ready."""
    peer: int = -1
    """Other end of a link."""


def faults(nodes: int, days: float, leaf: int, seed: int, *, slow: bool = True) -> list[NodeFault]:
    """Faults of a fleet, in order of time. leaf: nodes per leaf switch."""
    random = np.random.default_rng([seed, 61])
    hazard = random.gamma(LEMON_SHAPE, size=nodes)
    hazard /= hazard.sum()
    found = [each for at_s in _bursts(nodes, days, random) for each in _stop(at_s, hazard, leaf, random)]
    if slow:
        found += _slow_downs(nodes, days, hazard, random)
    return sorted((each for each in found if each.at_s < days * DAY_S), key=lambda each: (each.at_s, each.node))


def _bursts(nodes: int, days: float, random: np.random.Generator) -> FloatArray:
    total = sum(STOPS_PER_1000_NODE_DAYS.values()) * nodes / 1000 * days
    parents = random.uniform(0, days * DAY_S, random.poisson(total / CLUSTER))
    children = random.poisson(CLUSTER - 1, len(parents))
    after = np.repeat(parents, children) + random.uniform(0, 3600.0, int(children.sum()))
    return np.concatenate([parents, after])


def _stop(at_s: float, hazard: FloatArray, leaf: int, random: np.random.Generator) -> list[NodeFault]:
    kinds = list(STOPS_PER_1000_NODE_DAYS)
    rates = np.array(list(STOPS_PER_1000_NODE_DAYS.values()))
    kind = kinds[int(random.choice(len(kinds), p=rates / rates.sum()))]
    node = int(random.choice(len(hazard), p=hazard))
    repair_s = _repair_s(random) if random.random() < LASTING[kind] else 0.0
    visible = repair_s > 0 and (kind in (NodeFaultKind.NODE_LOST, NodeFaultKind.SWITCH) or random.random() < 0.6)
    peer = (node + int(random.integers(1, len(hazard)))) % len(hazard) if kind is NodeFaultKind.LINK_HANG else -1
    hit = [node]
    if kind is NodeFaultKind.SWITCH:
        first = node - node % leaf
        below = np.arange(first, min(first + leaf, len(hazard)))
        hit = random.choice(below, min(SWITCH_NODES, len(below)), replace=False).tolist()
        repair_s = min(repair_s, 4 * 3600.0)
    return [NodeFault(at_s, each, kind, repair_s, visible=visible, peer=peer) for each in hit]


def _repair_s(random: np.random.Generator) -> float:
    return float(min(random.lognormal(REPAIR_MU_H, REPAIR_SIGMA), REPAIR_MOST_H)) * 3600.0


def repairs_s(count: int = 20_000, seed: int = 0) -> list[float]:
    """Repair times as the process draws them."""
    random = np.random.default_rng([seed, 63])
    return [_repair_s(random) for _ in range(count)]


def _slow_downs(nodes: int, days: float, hazard: FloatArray, random: np.random.Generator) -> list[NodeFault]:
    found = []
    for kind, rate in SLOW_PER_1000_NODE_DAYS.items():
        for at_s in random.uniform(0, days * DAY_S, random.poisson(rate * nodes / 1000 * days)):
            node = int(random.choice(nodes, p=hazard))
            peer = (node + int(random.integers(1, nodes))) % nodes if kind is NodeFaultKind.SLOW_LINK else -1
            for_s = random.lognormal(np.log(SLOW_MEAN_S[kind]) - SLOW_SIGMA**2 / 2, SLOW_SIGMA)
            share = float(random.uniform(0.1, 0.6))
            found.append(NodeFault(float(at_s), node, kind, 0.0, share, float(min(for_s, 36_000.0)), peer=peer))
    return found


@dataclass(frozen=True, slots=True)
class Setup:
    """A job and its fleet. Times that are ours to choose are the same for every response that is compared."""

    nodes: int = 1250
    """Nodes of eight GPUs that the job needs."""
    least: int = 0
    """Nodes without which it does not run; 0: all of them. With fewer it is as much slower."""
    spares: int = 38
    days: float = 30.0
    leaf: int = 32
    interval_s: float = 180.0
    save_s: float = 1.0
    """Stall per checkpoint: a copy of sharded state to host memory, written on from there."""
    restart_s: float = 150.0
    """Stop of the gang to its first step on other nodes, image and checkpoint near by."""
    in_place_s: float = 75.0
    test_s: float = 600.0
    """A node's own test in quarantine."""
    test_misses: float = 0.05
    """Share of broken nodes that pass it."""
    person_s: float = 5400.0
    """A person's time to come, find the node by halving the job, and take it out."""
    named_share: float = 0.95
    """Verdicts that name the right node; others abstain or name another, as below."""
    wrong_share: float = 0.02
    probe_share: float = 0.8
    """Abstentions that the probe turns into the right name in time."""
    slow_seen_s: float = 30.0
    hang_seen_s: float = 5.0
    death_seen_s: float = 1.0


@dataclass(slots=True)
class Losses:
    """Seconds of the whole job that went elsewhere than into its work."""

    checkpoints: float = 0.0
    again: float = 0.0
    """Work that was done and lost."""
    down: float = 0.0
    slow: float = 0.0


@dataclass(slots=True)
class TrainingRun:
    """State of the job and of the hidden faults; a response acts on it and sees what it may see."""

    setup: Setup
    random: np.random.Generator
    now_s: float = 0.0
    work_s: float = 0.0
    saved_s: float = 0.0
    """Work in the newest complete checkpoint."""
    saved_at_s: float = 0.0
    checkpoint_at_s: float = 0.0
    """When the newest checkpoint was complete; `saved_at_s` begins anew with each run."""
    seats: list[int] = field(default_factory=list)
    """Nodes of the job."""
    down_until_s: float | None = None
    """When a restart that is under way ends; None without one."""
    stopped: NodeFault | None = None
    """What stopped the job, while it stands still."""
    stopped_at_s: float = 0.0
    unsound_until_s: dict[int, float] = field(default_factory=dict)
    """End of the repair of each broken node."""
    broken_by: dict[int, NodeFault] = field(default_factory=dict)
    slow: list[NodeFault] = field(default_factory=list)
    restarts: int = 0
    losses: Losses = field(default_factory=Losses)

    def advance(self, to_s: float) -> None:
        """Time passes, without an event within it."""
        while self.now_s < to_s:
            if self.stopped is not None or self.down_until_s is not None:
                self.losses.down += to_s - self.now_s
                self.now_s = to_s
                return
            due_s = self.saved_at_s + self.setup.interval_s
            end_s = min(to_s, max(due_s, self.now_s))
            speed = (1 - self.slow_share) * len(self.seats) / self.setup.nodes
            self.work_s += (end_s - self.now_s) * speed
            self.losses.slow += (end_s - self.now_s) * (1 - speed)
            self.now_s = end_s
            if end_s >= due_s:
                until_s = min(self.now_s + self.setup.save_s, to_s)
                self.losses.checkpoints += until_s - self.now_s
                self.now_s, self.saved_s = until_s, self.work_s
                self.saved_at_s = self.checkpoint_at_s = until_s

    @property
    def slow_share(self) -> float:
        """Loss of speed: the slowest rank sets the pace."""
        on = set(self.seats)
        return max(
            (each.slow_share for each in self.slow if (each.node in on and (each.peer < 0 or each.peer in on))),
            default=0.0,
        )

    def strike(self, fault: NodeFault) -> None:
        """A fault begins."""
        if fault.kind in SLOW:
            self.slow.append(fault)
            return
        if fault.repair_s > 0:
            self.unsound_until_s[fault.node] = max(
                self.unsound_until_s.get(fault.node, 0.0), fault.at_s + fault.repair_s
            )
            self.broken_by[fault.node] = fault
        is_hit = fault.node in self.seats and self._stops_on(fault)
        if is_hit and self.stopped is None and self.down_until_s is None:
            self._stop(fault)

    def _stop(self, fault: NodeFault) -> None:
        self.stopped, self.stopped_at_s = fault, self.now_s

    def end_slow(self, fault: NodeFault) -> None:
        self.slow = [each for each in self.slow if each is not fault]

    def restart(self, seats: list[int], for_s: float) -> None:
        """Stops the job, and starts it from its newest checkpoint."""
        self.losses.again += self.work_s - self.saved_s
        self.work_s = self.saved_s
        self.stopped, self.seats = None, seats
        self.down_until_s = self.now_s + for_s
        self.restarts += 1

    def started(self) -> None:
        """A restart ends: the job runs, or one of its nodes is broken still."""
        self.down_until_s, self.saved_at_s = None, self.now_s
        broken = next(
            (node for node in self.seats if self.is_unsound(node) and self._stops_on(self.broken_by[node])), None
        )
        if broken is not None:
            self._stop(replace(self.broken_by[broken], at_s=self.now_s))

    def _stops_on(self, fault: NodeFault) -> bool:
        return fault.kind is not NodeFaultKind.LINK_HANG or fault.peer in self.seats

    def is_unsound(self, node: int) -> bool:
        return self.unsound_until_s.get(node, 0.0) > self.now_s

    @property
    def ettr(self) -> float:
        """Effective training time ratio: work that counts over time, at full speed and with nothing lost."""
        return self.work_s / self.now_s if self.now_s else 1.0
