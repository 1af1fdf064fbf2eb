"""A training job of thousands of GPUs on faulty nodes: what it gets done, and what it loses to what."""

from dataclasses import dataclass, field, replace

import numpy as np

from simulator.health.fault_process import SLOW, Kind, NodeFault


@dataclass(frozen=True, slots=True)
class Setup:
    """A job and its fleet. Times that are ours to choose are the same for every response that is compared."""

    nodes: int = 1250
    """Nodes of eight GPUs that the job needs."""
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
            speed = 1 - self.slow_share
            self.work_s += (end_s - self.now_s) * speed
            self.losses.slow += (end_s - self.now_s) * (1 - speed)
            self.now_s = end_s
            if end_s >= due_s:
                self._save(to_s)

    def _save(self, to_s: float) -> None:
        until_s = min(self.now_s + self.setup.save_s, to_s)
        self.losses.checkpoints += until_s - self.now_s
        self.now_s, self.saved_s = until_s, self.work_s
        self.saved_at_s = self.checkpoint_at_s = until_s

    @property
    def slow_share(self) -> float:
        """Loss of speed: the slowest rank sets the pace."""
        on = set(self.seats)
        return max((each.slow_share for each in self.slow if self._slows(each, on)), default=0.0)

    def _slows(self, fault: NodeFault, on: set[int]) -> bool:
        return fault.node in on and (fault.peer < 0 or fault.peer in on)

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
        is_hit = fault.node in self.seats and (fault.kind is not Kind.LINK_HANG or fault.peer in self.seats)
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
        broken = next((node for node in self.seats if self.is_unsound(node) and self._matters(node)), None)
        if broken is not None:
            self._stop(replace(self.broken_by[broken], at_s=self.now_s))

    def _matters(self, node: int) -> bool:
        fault = self.broken_by[node]
        return fault.kind is not Kind.LINK_HANG or fault.peer in self.seats

    def is_unsound(self, node: int) -> bool:
        return self.unsound_until_s.get(node, 0.0) > self.now_s

    @property
    def ettr(self) -> float:
        """Effective training time ratio: work that counts over time, at full speed and with nothing lost."""
        return self.work_s / self.now_s if self.now_s else 1.0
