"""Simulated loop under load that changes every metric of the table, for tests that scrape it."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import structlog
from structlog.testing import CapturingLogger

from cluster.actions import Action, Bind
from cluster.autoscaling import ConcurrencyTuning, Context, ForecastSkill, Observation, Scaler
from cluster.errors import ObservationError
from cluster.plans import Finding, Plan, Reason, Unplaced
from cluster.snapshot import Snapshot
from cluster.teams import Team
from cluster.workloads import Gang
from controller.api.sandbox_policy import SandboxTrouble
from controller.brain.inline import InlineBrain
from controller.cycle import run_cycle
from controller.deciders.decisions import Decisions
from controller.guard import Limits
from controller.loops.isolation.loop import PolicyFacts, samples_of as sandbox_samples
from controller.loops.power.control import samples_of
from controller.loops.power.domain_facts import DomainFacts
from controller.metrics.registry import Meter, Sample, count_request
from controller.ports import Brain
from controller.report.cycle_reporter import CycleReporter
from isolation.orders import IsolationReport, SandboxReport
from simulator.world import SimulatedWorld
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service
from tests.builders.scalers import forecast_of, scaler
from tests.clock import ticking

BLIND_EVERY, FAIL_EVERY = 5, 7
"""Every fifth cycle cannot observe; every seventh bind fails."""


@dataclass(frozen=True, slots=True)
class OpinionatedBrain:
    """Brain whose plans also state a finding, and at times that the deadline cut them short."""

    brain: Brain
    is_late: bool

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        plan = self.brain.plan(snapshot, deadline_s)
        found = Finding("Gang/waits", Reason("NeverFits", "no node has 8 free GPUs"))
        tired = Unplaced("Pod/ns/tired", Reason("OutOfStops", "as many pods as may be were stopped for it in an hour"))
        late = (Reason("PackingOutOfTime", "the deadline passed"),) if self.is_late else ()
        waiting = (*plan.unplaced, tired)
        return replace(plan, findings=(*plan.findings, found), unplaced=waiting, cut_short=(*plan.cut_short, *late))


class Load:
    """A leader of a small mixed fleet. Every `step` is one cycle in which pods come and go, on a simulated clock.

    It lets things go wrong on purpose: binds that fail, gangs that break, evictions that the guard refuses, cycles that
    are blind, a service that cannot be planned, requests that are throttled.
    """

    def __init__(self, meter: Meter, now_s: Callable[[], float]) -> None:
        self._meter, self._now_s = meter, now_s
        self._rng = np.random.default_rng(5)
        self._steps = itertools.count(1)
        self._binds = itertools.count(1)
        self._world = SimulatedWorld(_fleet(now_s()), self._fault)
        self._reporter = CycleReporter(meter, structlog.wrap_logger(CapturingLogger()), now_s)
        self._reporter.report_leadership(leads=True, epoch=1)

    def _fault(self, action: Action) -> str | None:
        return "driver hiccup" if isinstance(action, Bind) and next(self._binds) % FAIL_EVERY == 0 else None

    def step(self) -> None:
        number = next(self._steps)
        self._draw(number)
        if number % BLIND_EVERY == 0:
            count_request(self._meter, "list", "pods", 0, 1.0)
            self._reporter.report_blind(
                ObservationError("listing pods: connection refused; the next cycle tries again")
            )
            return
        self._arrive(number)
        self._world.pass_time(self._now_s() - self._world.observe().at_s)
        decisions = Decisions(policy="bestfit", preempt=number % 2 == 0)
        brain = OpinionatedBrain(InlineBrain(decisions, clock=ticking(1e-5)), is_late=number % 3 == 0)
        # No eviction is allowed, so the guard refuses those that are planned for the pods of high priority.
        limits = Limits(max_evictions_share=0.0, max_evictions_floor=0)
        self._reporter.report_cycle(run_cycle(self._world, brain, limits, deadline_s=10.0, clock=ticking(0.01)))
        cycle = self._meter._published["cycle"]  # no agent reads power here
        draws = {"tonnage_service_draw_watts": 900.0, "tonnage_service_joules_per_token": 1.5}
        cycle.samples = (*cycle.samples, *(Sample(name, ("ns/chat",), each) for name, each in draws.items()))
        for verb, code in (("watch", 200), ("create", 201), ("patch", 409 if number % 3 else 429)):
            count_request(self._meter, verb, "pods", code, 0.004)

    def _draw(self, number: int) -> None:
        """A row whose low class is held back, and agents that report."""
        facts = DomainFacts(
            draw_w=900.0 + number % 7, worst_w=990.0, budget_w=1000.0, headroom_w=40.0, devices=4, managed=4, stale=1,
            suspects=1, held=1, unheard_nodes=(), culprits=(), short_w={"high": 0.0, "low": 120.0},
        )  # fmt: skip
        self._meter.publish("power", samples_of({"row": facts}))
        self._meter.publish("scaling", [Sample("tonnage_desired_replicas", ("team-a/chat",), 3.0)])
        self._meter.publish(
            "health",
            [
                Sample("tonnage_health_incidents", ("Paged",), 1.0),
                Sample("tonnage_health_waiting", ("DrainBlocked",), 1.0),
                Sample("tonnage_health_nodes_out", ("quarantine",), 1.0),
                Sample("tonnage_health_heard_share", (), 0.95),
                Sample("tonnage_health_checkpoint_lost_share", ("as it is",), 0.02),
                Sample("tonnage_health_verdicts", ("dead-process",), float(number)),
                Sample("tonnage_health_probes", ("nic",), float(number)),
                Sample("tonnage_health_refused", ("replayed",), 0.0),
            ],
        )
        self._meter.count("tonnage_demand_readings_total", "prometheus", "QueryEmpty" if number % 3 else "ok")
        calls = SandboxReport(agent_bytes=1 << 30, calls_bytes=2 << 30, running=4, queued=1, frozen=1)
        policy = PolicyFacts((calls, SandboxReport()), (SandboxTrouble(pod="ns/p", node="a", message="silent"),))
        here = IsolationReport("a", "life", "full", "cgroup v2, writable", 8 << 30, 3 << 30)
        self._meter.publish("sandboxes", sandbox_samples({"agents": policy}, {"a": here}))
        self._meter.count("tonnage_sandbox_happenings_total", "agents", "ToolCallKilled", "OUTGREW_CLAIM")
        self._meter.count("tonnage_sandbox_happenings_total", "agents", "AgentKilled", "NODE_SHORT_OF_MEMORY", by=0)
        for name in ("reports", "leases"):
            self._meter.count(f"tonnage_power_{name}_total", by=4)
        self._meter.count("tonnage_power_failed_turns_total", by=0)
        self._meter.count("tonnage_power_messages_refused_total", "OtherNode", by=number % 2)
        self._meter.observe("tonnage_power_reaction_seconds", 0.05)
        self._meter.set("tonnage_power_agents", 2)
        self._meter.set("tonnage_power_last_turn_timestamp_seconds", self._now_s())

    def _arrive(self, number: int) -> None:
        new = [pod(f"s{number}-{n}", gpus=int(self._rng.choice((1, 1, 2))), priority=n) for n in range(3)]
        self._world.arrive(world([], new).pods)
        seen = self._world.observe()
        leaving = [name for name in seen.pods.names if name.startswith("s")]
        self._world.depart(self._rng.choice(leaving, size=min(2, len(leaving)), replace=False).tolist())


def _fleet(at_s: float) -> Snapshot:
    """24 GPUs of two types; one node lacks CPU, one is cordoned; a gang that fits and one that never will."""
    fleet = world(
        [
            node("a", gpus=8),
            node("starved", gpus=4, cpu_milli=500),
            node("shut", gpus=4, schedulable=False),
            node("h", gpus=8, gpu_type="H100"),
        ],
        [
            *(pod(f"g{n}", gpus=1, gang="fits") for n in range(2)),
            *(pod(f"w{n}", gpus=8, gang="waits") for n in range(4)),
        ],
        gangs=[Gang("fits", 2), Gang("waits", 4)],
        services=[service("ns/chat", rate=1.5), service("ns/odd", demand=None)],
        profiles=[profile("A100", [[1.0]]), profile("H100", [[2.0]])],
        prices={"A100": 3.0, "H100": 5.0},
        at_s=at_s,
    )
    return replace(fleet, scalers=(_scaler(at_s),), teams=(Team("research", frozenset({"g0", "g1"})),))


def _scaler(at_s: float) -> Scaler:
    """A policy whose load outgrows its bounds."""
    skill = ForecastSkill("core", is_trusted=True, skill=0.1, coverage_90=0.91, coverage_99=0.99)
    load = forecast_of(9.0, made_at_s=at_s)
    served = Observation(8, Context("A100", 4, 3), throughput=4.0, requests=500, p95_s=3.0, in_flight=8.0)
    tuning = ConcurrencyTuning(5.0, 1, 64, start=8, wanted=8, seen=served, seen_at_s=at_s)
    return scaler(
        3, name="team-a/chat", mode="Recommend", max_replicas=3, load=9.0, forecast=load, skill=skill,
        observed_at_s=at_s, max_age_s=1e9, concurrency=tuning,
    )  # fmt: skip
