"""Simulated day: the controller's own loop with job arrivals, daily demand waves, and a lost node; and its baseline."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import cos, pi

import numpy as np

from cluster import actions, arrays, errors, plans, snapshot, workloads
from cluster.nodes import eligible_nodes
from controller import cycle, guard, ports
from controller.background.mix_search import answered, answers_in, tasks_of
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from placement.budget import Budget
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, plan_mix
from simulator.world import SimulatedWorld

HOUR_S = 3600.0
STARTING = "Starting"
"""Code of pods that wait although the plan gives no reason: they arrived or were scaled within the cycle."""


@dataclass(frozen=True, slots=True)
class DayMoment:
    """State after one cycle, for the live output and for the report."""

    at_s: float
    """Simulated seconds since midnight."""
    gpus: int
    """GPUs on nodes that are up or cordoned, without those of a lost node."""
    gpus_used: float
    running: int
    waiting: int
    waits: Mapping[str, int]
    """Pods that wait, by the code of the reason."""
    why: Mapping[str, str]
    """One reason of each code, in words."""
    services_per_hour: float
    """Price per hour of the services' running instances, in dollars: on spot nodes at the spot price."""
    loading_s: float
    """Seconds for which services have an instance that loads after its start in this cycle, sum over the services."""
    loading_dollars: float
    """What the instances that were started in this cycle cost while they load."""
    jobs_gpus: float
    """GPUs that pods of no service hold."""
    whole: tuple[str, ...]
    """Services that have a mix, all of whose instances run."""
    demand_share: float
    """Demand as a fraction of the peak."""
    bound: int
    """Pods bound in this cycle."""
    evicted: int
    scaled: int
    failed: int
    """Failed actions."""
    plan_s: float
    """Real seconds from the snapshot to the plan before the guard."""
    gap: float
    """Widest optimality gap of a service's mix: fraction of its price that is not proven to be needed."""
    out_of_time: int
    """Number of parts of the plan that time cut off."""
    lost: str
    """Node that is down after a failure; empty: none."""
    news: tuple[str, ...]
    """Events of the cycle, in words."""


def clock_words(at_s: float) -> str:
    """Seconds since midnight as `13:05`."""
    minutes = round(at_s / 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def services_per_hour(seen: snapshot.Snapshot, among: Collection[str] | None = None) -> float:
    """Price per hour of the services' running instances, in dollars. among: names of the pods that count; None: all."""
    rows = (row for row, owner in enumerate(seen.pods.owner) if owner and seen.pods.node[row] != snapshot.PENDING)
    rows = (row for row in rows if among is None or seen.pods.names[row] in among)
    running = ((seen.pods.shapes[seen.pods.shape[row]], seen.nodes.gpu_type[seen.pods.node[row]]) for row in rows)
    return float(
        sum(
            shape.total_gpu_milli
            / 1000
            * seen.gpu_types[gpu_type].price(spot=workloads.requires_spot(shape.node_terms))
            for shape, gpu_type in running
            if gpu_type >= 0
        )
    )


def jobs_gpus(seen: snapshot.Snapshot) -> float:
    """GPUs that pods of no service hold."""
    pods = seen.pods
    rows = (row for row, owner in enumerate(pods.owner) if not owner and pods.node[row] != snapshot.PENDING)
    return float(sum(pods.shapes[pods.shape[row]].total_gpu_milli for row in rows) / 1000)


def whole_services(seen: snapshot.Snapshot, plan: plans.Plan) -> tuple[str, ...]:
    """Services that have a mix, all of whose instances run."""
    short = {owner for row, owner in enumerate(seen.pods.owner) if owner and seen.pods.node[row] == snapshot.PENDING}
    return tuple(each.service for each in plan.services if each.refusal is None and each.service not in short)


def waits(seen: snapshot.Snapshot, plan: plans.Plan) -> Mapping[str, int]:
    """Pods that wait, by the code of the plan's reason for them or for their gang."""
    reasons = {each.workload: each.reason.code for each in plan.unplaced}
    counts = Counter[str]()
    for row in np.flatnonzero(seen.pods.node == snapshot.PENDING).tolist():
        gang = int(seen.pods.gang[row])
        of_gang = reasons.get(f"Gang/{seen.gangs[gang].name}") if gang >= 0 else None
        counts[of_gang or reasons.get(f"Pod/{seen.pods.names[row]}", STARTING)] += 1
    return dict(counts)


PATIENCE_S = 3600.0
"""Real seconds that the day's clock waits for a plan. Work alone bounds plans, so a busy machine makes the same."""
NIGHT_SHARE = 0.35
"""Lowest demand at night, as a fraction of the peak. The ServeGen m-large trace has P1/mean 0.32 and peak/mean 3."""
PEAK_HOUR = 15.0
JOB_SPREAD = 1.0
"""Sigma of the jobs' lognormal durations: one in six runs longer than e times the median."""
JOBS = "day/job-"
"""Start of the names of the day's jobs; their number follows."""
FIRST_SERVICES_SHARE = 0.5
"""Fraction of a fleet with services that is offered to jobs: the services use the rest as their demand rises."""


@dataclass(frozen=True, slots=True)
class DaySettings:
    """Settings of a simulated day."""

    hours: float = 24.0
    step_s: float = 600.0
    """Simulated time between two cycles of the controller, seconds."""
    load: float = 0.8
    """GPUs that the jobs request on average at the peak, as a fraction of the fleet's (of half of it beside
    services)."""
    job_hours: float = 2.0
    """Median duration of a job."""
    lose: str = ""
    """Node that is lost at `lose_hour` for `repair_hours`; empty: the one with most allocated GPUs at that hour."""
    lose_hour: float | None = 13.0
    """None: no node is lost."""
    repair_hours: float = 3.0
    deadline_s: float = 5.0
    """Nominal deadline of each plan, for the brain's settings: they make an amount of work of it."""
    seed: int = 0


def tide(hour: float) -> float:
    """Demand at an hour of the day, as a fraction of the peak: one wave a day."""
    wave = 0.5 + 0.5 * cos(2 * pi * (hour - PEAK_HOUR) / 24.0)
    return NIGHT_SHARE + (1 - NIGHT_SHARE) * wave


def check_day(fleet: snapshot.Snapshot, settings: DaySettings) -> None:
    """Raises ConfigError when such a day would have nothing to simulate."""
    mistakes = []
    if not fleet.nodes.gpus.sum():
        mistakes.append(errors.Mistake("fleet", "it has no GPU", "add nodes that have some"))
    if not len(_job_rows(fleet)):
        mistakes.append(errors.Mistake("fleet", "it has no pod that a job could copy", "add pods that request GPUs"))
    if settings.lose and settings.lose not in fleet.nodes.names:
        mistakes.append(errors.Mistake(f"--lose {settings.lose}", "there is no such node", "name one, or leave it out"))
    if mistakes:
        raise errors.ConfigError(tuple(mistakes))


def live(
    fleet: snapshot.Snapshot,
    brain: ports.Brain,
    settings: DaySettings,
    clock: Callable[[], float],
    world: SimulatedWorld | None = None,
) -> Iterator[DayMoment]:
    """Moments of the day, in order. Jobs copy the fleet's own pods that request GPUs; whole gangs arrive together.

    clock: real seconds, for `Moment.plan_s` alone. The same fleet, brain and settings give the same day on any machine.
    With one seed, days of any brain have the same jobs, which last the same time once they start.
    Raises ConfigError (check_day).
    """
    check_day(fleet, settings)
    within = world or SimulatedWorld(replace(fleet, at_s=0.0, observed_at_s={}))
    return _Day(within, fleet, brain, settings, clock).moments()


class _Day:
    def __init__(
        self,
        world: SimulatedWorld,
        fleet: snapshot.Snapshot,
        brain: ports.Brain,
        settings: DaySettings,
        clock: Callable[[], float],
    ) -> None:
        self._world, self._fleet, self._brain, self._settings, self._clock = world, fleet, brain, settings, clock
        self._rng = np.random.default_rng(settings.seed)
        self._jobs = _jobs(fleet)
        self._peak = {each.name: each.demand.rate_per_s for each in fleet.services if each.demand}
        self._ends_at_s: dict[str, float] = {}
        self._numbers = count(1)
        self._lost = ""

    def moments(self) -> Iterator[DayMoment]:
        world, settings = self._world, self._settings
        for step in range(round(settings.hours * HOUR_S / settings.step_s)):
            at_s = step * settings.step_s
            news = list(self._failures(at_s))
            over = [pod for pod, end_s in self._ends_at_s.items() if end_s <= at_s]
            for pod in over:
                del self._ends_at_s[pod]
            world.depart(over)
            self._jobs_arrive(at_s)
            share = tide(at_s / HOUR_S)
            world.demand({name: rate * share for name, rate in self._peak.items()})
            world.pass_time(at_s - world.observe().at_s)
            done = cycle.run_cycle(world, self._brain, guard.Limits(), PATIENCE_S, self._clock)
            # Sets the end of every newly bound job; one that was stopped starts from its beginning.
            pods = self._world.observe().pods
            for change in (change for step in done.outcome.done for change in step.action.seat_changes):
                if change.node_after is None:
                    self._ends_at_s.pop(change.pod, None)
                row = pods.names.row(change.pod) if change.node_before is None else None
                if row is not None and change.pod.startswith(JOBS) and pods.node[row] != snapshot.PENDING:
                    # The seed and the job's number alone decide how long it lasts: the same in every day of the seed.
                    number = int(change.pod.removeprefix(JOBS).partition("-")[0])
                    drawn = np.random.default_rng((self._settings.seed, number)).lognormal(0.0, JOB_SPREAD)
                    self._ends_at_s[change.pod] = at_s + self._settings.job_hours * HOUR_S * float(drawn)
            seen = self._world.observe()
            up = np.array([name != self._lost for name in seen.nodes.names])
            free_milli = seen.free().gpu_milli.sum(axis=1)
            changes = [change for step in done.outcome.done for change in step.action.seat_changes]
            started = {change.pod for change in changes if change.node_after is not None}
            owners = {owner for name, owner in zip(seen.pods.names, seen.pods.owner, strict=True) if name in started}
            yield DayMoment(
                at_s=at_s,
                gpus=int(seen.nodes.gpus[up].sum()),
                gpus_used=float(seen.nodes.gpus[up].sum() - free_milli[up].sum() / 1000),
                running=int((seen.pods.node != snapshot.PENDING).sum()),
                waiting=int((seen.pods.node == snapshot.PENDING).sum()),
                waits=waits(seen, done.plan),
                why={each.reason.code: f"{each.workload}: {each.reason.words}" for each in done.plan.unplaced},
                services_per_hour=services_per_hour(seen),
                loading_s=workloads.LOAD_S * len(owners - {""}),
                loading_dollars=workloads.LOAD_S / HOUR_S * services_per_hour(seen, started),
                jobs_gpus=jobs_gpus(seen),
                whole=whole_services(seen, done.plan),
                demand_share=tide(at_s / HOUR_S),
                bound=sum(change.node_before is None for change in changes),
                evicted=sum(change.node_before is not None for change in changes),
                scaled=sum(isinstance(step.action, actions.Scale) for step in done.outcome.done),
                failed=len(done.outcome.undone),
                plan_s=done.stage_s["plan"],
                gap=max((each.certificate.gap for each in done.plan.services if each.certificate), default=0.0),
                out_of_time=len(done.plan.cut_short),
                lost=self._lost,
                news=(*news, *_news(done, world.observe())),
            )

    def _failures(self, at_s: float) -> Iterator[str]:
        """Loses the day's node, or takes it back, at its time."""
        wanted = self._settings
        if wanted.lose_hour is None:
            return
        lost_at_s = wanted.lose_hour * HOUR_S
        if not self._lost and lost_at_s <= at_s < lost_at_s + wanted.repair_hours * HOUR_S:
            nodes, free = self._world.observe().nodes, self._world.observe().free()
            used = np.where(nodes.schedulable, 1000 * nodes.gpus - free.gpu_milli.sum(axis=1), -1)
            self._lost = wanted.lose or str(nodes.names[int(np.argmax(used))])
            pods = self._world.lose(self._lost)
            for pod in pods:
                self._ends_at_s.pop(pod, None)
            yield f"node {self._lost} is lost with {len(pods)} pods"
        elif self._lost and at_s >= lost_at_s + wanted.repair_hours * HOUR_S:
            self._world.regain(self._lost)
            yield f"node {self._lost} is back"
            self._lost = ""

    def _jobs_arrive(self, at_s: float) -> None:
        """Adds the jobs of one step: copies of the fleet's own, as many as chance gives at this hour."""
        gpus = float(self._fleet.nodes.gpus.sum()) * (FIRST_SERVICES_SHARE if self._peak else 1.0)
        mean_s = self._settings.job_hours * HOUR_S * float(np.exp(JOB_SPREAD**2 / 2))
        gpus_per_job = float(np.mean([job.gpus for job in self._jobs]))
        per_step = self._settings.load * gpus / gpus_per_job / mean_s * self._settings.step_s * tide(at_s / HOUR_S)
        for _ in range(int(self._rng.poisson(per_step))):
            job, number = self._jobs[int(self._rng.integers(len(self._jobs)))], next(self._numbers)
            size, pods = len(job.rows), self._fleet.pods
            gangs = (replace(job.gang, name=f"{JOBS}{number}"),) if job.gang else ()
            fresh = snapshot.PodTable.waiting(
                [f"{JOBS}{number}-{member}" for member in range(size)],
                np.arange(size, dtype=np.int64),
                tuple(pods.shapes[index] for index in pods.shape[job.rows]),
                priority=pods.priority[job.rows],
                gang=np.full(size, len(self._world.observe().gangs) if gangs else -1),
                movable=pods.movable[job.rows],
            )
            self._world.arrive(fresh, gangs)


@dataclass(frozen=True, slots=True)
class _Job:
    """Pods that arrive together: one pod, or a whole gang."""

    rows: arrays.IntArray
    """Rows of the fleet's pods that the job copies."""
    gang: workloads.Gang | None
    gpus: float


def _job_rows(fleet: snapshot.Snapshot) -> arrays.IntArray:
    """Pods that jobs may copy: no instances of services, and with GPUs that some node has."""
    pods = fleet.pods
    fits = np.array(
        [
            shape.gpus > 0 and bool((eligible_nodes(shape, fleet.nodes, fleet.gpu_type_names)).any())
            for shape in pods.shapes
        ],
        dtype=bool,
    )
    owned = np.array([bool(owner) for owner in pods.owner], dtype=bool)
    return np.flatnonzero(fits[pods.shape] & ~owned) if len(pods) else np.array([], dtype=np.int64)


def _jobs(fleet: snapshot.Snapshot) -> list[_Job]:
    pods, rows = fleet.pods, _job_rows(fleet)

    def gpus(of: arrays.IntArray) -> float:
        return float(sum(fleet.pods.shapes[index].total_gpu_milli for index in pods.shape[of]) / 1000)

    single = [
        _Job(rows[at : at + 1], None, gpus(rows[at : at + 1])) for at in range(len(rows)) if pods.gang[rows[at]] < 0
    ]
    members = {gang: rows[pods.gang[rows] == gang] for gang in sorted(set(pods.gang[rows].tolist()) - {-1})}
    whole = [
        _Job(mine, fleet.gangs[gang], gpus(mine))
        for gang, mine in members.items()
        if len(mine) >= fleet.gangs[gang].min_members
    ]
    return single + whole


def _news(done: cycle.Cycle, after: snapshot.Snapshot) -> Iterator[str]:
    replicas = {service.name: service.replicas or {} for service in after.services}
    for action in (step.action for step in done.outcome.done):
        if isinstance(action, actions.Scale):
            now = sorted(replicas[action.service].items())
            yield f"{action.service}: {' + '.join(f'{n} × {name}' for name, n in now if n) or 'none'}"
        elif action.columns and not action.seat_changes:
            yield f"{action.subject} {action.done.lower()} {action.sentence}"
        for change in action.seat_changes:
            if change.node_after is None:
                yield f"{change.pod} preempted on {change.node_before}"
    for undone in done.outcome.undone:
        yield f"not done: {undone.reason.words}"


def background_gain(fleet: snapshot.Snapshot, decisions: Decisions) -> tuple[int, float, float]:
    """(questions that a plan of this fleet leaves to background tasks, dollars per hour of the services' mixes in the
    next plan without answers, and in one with them)."""
    brain, found = InlineBrain(decisions), list[float]()
    brain.plan(fleet, PATIENCE_S)
    asked = brain.memory.mix.open
    for tasks in ((), tasks_of(asked)):
        for task in tasks:
            brain.memory.mix.learn(answers_in(answered(*task.inputs)))
        found.append(sum(each.cost_per_hour for each in brain.plan(fleet, PATIENCE_S).services))
    return len(asked), found[0], found[1]


BASELINE_POLICY = "bestfit"
TYPE_WITHIN_S = 2.0
"""Size of each search for a type, as the deadline of a plan. One type leaves little to search for."""


@dataclass(frozen=True, slots=True, eq=False)
class OneTypeFleet:
    """Fleet whose services use one GPU type each."""

    fleet: snapshot.Snapshot
    types: Mapping[str, str]
    """GPU type of each service that a single type can serve."""


def one_type_each(fleet: snapshot.Snapshot) -> OneTypeFleet:
    """Each service on the one GPU type that serves its peak at the least cost on this fleet, by descending priority.

    A service that no single type can serve keeps the types that it may use.
    """
    chosen: dict[str, workloads.ModelService] = {}
    types: dict[str, str] = {}
    for service in sorted(fleet.services, key=lambda each: -each.priority):
        profiled = {kind.gpu_type for kind, _ in fleet.profiles_of(service)}
        costs = []
        for gpu_type in sorted(profiled & set(service.gpu_types or fleet.gpu_type_names) & set(fleet.gpu_type_names)):
            services = (*chosen.values(), replace(service, gpu_types=(gpu_type,)))
            settings = MixSettings(explain=False)
            plan = plan_mix(replace(fleet, services=services), Budget(work_of(TYPE_WITHIN_S)), settings).services[-1]
            if plan.refusal is None:
                costs.append((plan.cost_per_hour, gpu_type))
        if costs:
            types[service.name] = min(costs)[1]
        only = (types[service.name],) if costs else service.gpu_types
        chosen[service.name] = replace(service, gpu_types=only)
    return OneTypeFleet(replace(fleet, services=tuple(chosen[each.name] for each in fleet.services)), types)


def baseline_day(
    fleet: snapshot.Snapshot, settings: DaySettings, decisions: Decisions, clock: Callable[[], float], lost: str
) -> tuple[OneTypeFleet, Iterator[DayMoment]]:
    """The same day on one type for each service, and pods by best fit.

    decisions: those of the day itself, of which only the policy of placement is another. lost: node that failed in it.
    """
    one_type = one_type_each(fleet)
    brain = InlineBrain(replace(decisions, policy=BASELINE_POLICY), clock)
    same = replace(settings, lose=lost, lose_hour=settings.lose_hour if lost else None)
    return one_type, live(one_type.fleet, brain, same, clock)
