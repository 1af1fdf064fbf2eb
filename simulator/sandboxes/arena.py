"""Arena of a run in the guest: its cgroups, with the limits that its policy sets, and isolation where that is ours."""

import os
import select
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from isolation.cgroupfs import CgroupFs
from isolation.ledger import MIB, Sandbox
from isolation.settings import Settings
from isolation.tree import CONTROLLERS
from nodeagent.sandboxes.enforcer import Enforcer, lower_own_risk
from simulator.sandboxes.pressure import PressureRule, PressureWatch, pressure_of
from simulator.sandboxes.processes import Scale
from simulator.sandboxes.runs import OURS, PRESSURE, Policy, Run
from simulator.sandboxes.traces import AgentTrace

ROOT = Path("/sys/fs/cgroup")
FOLDER = "replay"

HIGH_RULE_SHARE = 0.985
"""memory.high of the low agents as a share of their known peak: AgentCgroup's setting (400 of 406 MiB)."""

PROCESS_MIB = 3.0
"""What an agent's and a call's process take by themselves: forked Python."""


PRESSURE_RULES: Mapping[Policy, PressureRule] = {
    "pressure": PressureRule(full_share=0.6, for_s=30.0, window_s=10.0, rest_s=15.0),
    "pressure-brake": PressureRule(full_share=0.1, for_s=1.0, window_s=10.0, rest_s=15.0),
}
"""In unscaled time. `pressure`: systemd-oomd's defaults (src/oom/oomd-manager.h). `pressure-brake`: the shortest
duration that it takes, and a low limit."""
PRESSURE_BRAKE_SHARE = 0.95
"""memory.high of all agents together as a share of the node's limit, so that memory runs short before it runs out:
without swap, processes die at the limit before any has waited. Chosen."""


class Arena:
    """Cgroups of one run. This process becomes the kernel's last choice, and the first to run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.scale = Scale(run.memory_scale, run.time_scale)
        self.files = CgroupFs(ROOT)
        self.files.make(FOLDER)
        self.files.write(FOLDER, "cgroup.subtree_control", " ".join(f"+{one}" for one in CONTROLLERS))
        self.below = CgroupFs(ROOT / FOLDER)
        # What the replay's processes take by themselves: an agent and one call each, at most.
        self.budget = self.scale.bytes_of(run.budget_mib) + round(len(run.agents) * 2 * PROCESS_MIB * MIB)
        if run.policy != "unlimited":
            self.files.write(FOLDER, "memory.max", str(self.budget))
        self.pressure: PressureWatch | None = None
        if run.policy in PRESSURE:
            rule, speed = PRESSURE_RULES[run.policy], run.time_scale
            scaled = PressureRule(rule.full_share, rule.for_s * speed, rule.window_s * speed, rule.rest_s * speed)
            self.pressure = PressureWatch(scaled)
        if run.policy == "pressure-brake":
            self.files.write(FOLDER, "memory.high", str(round(PRESSURE_BRAKE_SHARE * self.budget)))
        self.enforcer = Enforcer(self.below, self.budget, self._settings(), time.monotonic)
        self.enforcer.tree.prepare()
        lower_own_risk()
        os.setpriority(os.PRIO_PROCESS, 0, -20)

    def _settings(self) -> Settings:
        """The defaults, at the run's scale of memory and time."""
        memory, real = self.run.memory_scale, Settings()
        speed = self.run.time_scale
        return replace(
            real,
            leases="whole" if self.run.policy == "whole-claims" else "growing",
            start_lease_bytes=round(real.start_lease_bytes * memory + PROCESS_MIB * MIB),
            lease_step_bytes=round(real.lease_step_bytes * memory),
            lease_slack_bytes=round(real.lease_slack_bytes * memory),
            agent_slack_bytes=round(real.agent_slack_bytes * memory),
            frozen_s=real.frozen_s * max(speed, 0.1),
            starvation_s=real.starvation_s * max(speed, 0.1),
            longest_wait_s=real.longest_wait_s * max(speed, 0.1),
            ask_s=real.ask_s * max(speed, 0.1),
        )

    def add_sandbox(self, index: int, name: str, trace: AgentTrace) -> None:
        """The sandbox's groups with the policy's limits; the kubelet sets memory.oom.group on containers."""
        policy = self.run.policy
        if policy in OURS:
            base_bytes = self.scale.bytes_of(trace.base_mib * self.run.base_hint) + round(2 * PROCESS_MIB * MIB)
            kept_bytes = base_bytes + self._largest_claim(index, trace) if self.run.priorities[index] else 0
            self.enforcer.add_sandbox(Sandbox(name, self.budget, self.run.priorities[index], kept_bytes, base_bytes))
            return
        self.enforcer.tree.add_sandbox(name)
        self.below.write(name, "memory.oom.group", "1")
        if policy == "static":
            self.below.write(name, "memory.max", str(self.budget // len(self.run.agents)))
        if policy == "high-rule" and self.run.priorities[index] == 0:
            high = HIGH_RULE_SHARE * self.scale.bytes_of(trace.peak_mib) + 2 * PROCESS_MIB * MIB
            self.below.write(name, "memory.high", str(round(high)))

    def _largest_claim(self, index: int, trace: AgentTrace) -> int:
        """Largest declared need of the agent's calls, which is guaranteed to agents of a higher priority."""
        hints = zip(self.run.hints[index], trace.phases, strict=True)
        largest = max((hint * phase.call.peak_mib for hint, phase in hints if phase.call is not None), default=0.0)
        return self.scale.bytes_of(largest) + round(PROCESS_MIB * MIB)

    def relieve(self) -> str:
        """Kills the sandbox that holds most where pressure is due; its name, or none.

        A group with memory.oom.group goes as a whole, as under systemd-oomd. That takes the one that reclaims most,
        which says nothing of anonymous memory without swap.
        """
        pressure = pressure_of(self.files.read(FOLDER, "memory.pressure"))
        if self.pressure is None or not self.pressure.is_due(time.monotonic(), pressure):
            return ""
        held = {name: int(self.below.read(name, "memory.current")) for name in self.below.children("")}
        victim = max(held, key=held.__getitem__)
        self.below.write(victim, "cgroup.kill", "1")
        return victim

    def events(self) -> Mapping[str, int]:
        """Counts of the kernel, such as `oom_kill`."""
        lines = self.files.read(FOLDER, "memory.events").splitlines()
        return {name: int(count) for name, count in (line.split() for line in lines)}

    def peak_mib(self) -> float:
        """Most that all held together, unscaled."""
        return int(self.files.read(FOLDER, "memory.peak")) / MIB / self.run.memory_scale

    def clear(self) -> None:
        """Kills what is left and removes all groups, so that the next run finds none."""
        self.files.write(FOLDER, "cgroup.kill", "1")
        for _ in range(500):
            _reap()
            if "populated 0" in self.files.read(FOLDER, "cgroup.events"):
                break
            select.select([], [], [], 0.01)
        for sandbox in self.below.children(""):
            for leaf in self.below.children(sandbox):
                self.below.remove(f"{sandbox}/{leaf}")
            self.below.remove(sandbox)
        self.below.close()
        self.files.remove(FOLDER)
        self.files.close()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
