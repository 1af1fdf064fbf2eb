"""Generator of wrong plans: a sound plan for a random fleet, and steps that each break one rule of the guard."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from cluster.actions import (
    Action,
    Bind,
    Evict,
    HoldSeats,
    Move,
    Release,
    ReleaseClaim,
    RestartGang,
    Scale,
    SetReplicas,
    Taint as SetTaint,
    Untaint,
)
from cluster.arrays import column
from cluster.autoscaling import Scaler, ScaleTarget
from cluster.changes import PROBATION_TAINT, UNHEALTHY_TAINT
from cluster.demand import Demand, LengthGrid, Slo
from cluster.disruption import DisruptionBudget
from cluster.nodes import NodeTaint
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import HeldSeat, HeldSeats, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, Gang, IdleClaim, ModelService
from tests.builders.fleet import GIB, Node, Pod, node, pod, world
from tests.builders.mix import of_types
from tests.builders.power import Device, Domain, power_table
from tests.builders.scalers import scaler

WHY = Reason("Test", "because")
RISE_W = 140.0
"""Of a device that starts to work: its floor of 200 W less the 60 W that it draws at rest (tests/builders/power.py)."""
AMPLE_W = 1e6


@dataclass(frozen=True)
class Content:
    """Objects of a fleet."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    gangs: tuple[Gang, ...] = ()
    claims: tuple[IdleClaim, ...] = ()
    services: tuple[str, ...] = ()
    scalers: tuple[Scaler, ...] = ()
    runs_one: frozenset[str] = frozenset()
    """Services that have one instance."""
    budgets: tuple[DisruptionBudget, ...] = ()
    tight: frozenset[str] = frozenset()
    """Nodes whose power domain lacks a watt to start one more device."""

    def plus(self, other: "Content") -> "Content":
        return Content(
            self.nodes + other.nodes,
            self.pods + other.pods,
            self.gangs + other.gangs,
            self.claims + other.claims,
            self.services + other.services,
            self.scalers + other.scalers,
            self.runs_one | other.runs_one,
            self.budgets + other.budgets,
            self.tight | other.tight,
        )

    @property
    def snapshot(self) -> Snapshot:
        grid = LengthGrid((100,), (100,))
        demand = Demand(1.0, grid, column([[1.0]], "float64"))
        one = of_types({"A100": 1})
        services = [
            ModelService(name, "m", demand, Slo(0.04), replicas=one if name in self.runs_one else None)
            for name in self.services
        ]
        made = world(self.nodes, self.pods, self.gangs, services, budgets=self.budgets)
        domains = [Domain("ample", 1e7, kind="row"), Domain("tight", 1e7, kind="row")]
        domains += [Domain(n.name, feeds={"tight" if n.name in self.tight else "ample": 1.0}) for n in self.nodes]
        devices = [Device(f"{n.name}-{d}", n.name) for n in self.nodes for d in range(n.gpus)]
        headroom_w = {"ample": AMPLE_W, "tight": RISE_W - 1.0}
        power = replace(power_table(domains, devices), headroom_w=headroom_w)
        return replace(made, power=power, idle_claims=self.claims, scalers=self.scalers)


@dataclass(frozen=True)
class Wrong:
    """A step that breaks one rule, in a fleet that gives it no other reason to be refused."""

    action: Action
    code: str
    content: Content = field(default_factory=Content)


def phase(name: str, *actions: Action, whole: bool = False) -> Phase:
    return Phase(name, tuple(Step(action, WHY) for action in actions), whole)


def sound(chance: Random) -> tuple[Content, Plan]:
    """A random fleet, and a plan with every kind of action, that the guard has nothing against."""
    gpus, members = chance.randint(2, 8), chance.randint(2, 4)
    nodes = tuple(
        node(name, gpus) for name in ("room", "claimed", "old", "new", "mixed", "sick", *_numbered("rack", members))
    )
    nodes = (*nodes, replace(node("better", gpus), taints=(NodeTaint(PROBATION_TAINT, "i.1"),)))
    nodes = (*nodes, *(node(name, 1) for name in _numbered("spread", 20)))
    last = gpus - 1
    pods = (
        pod("victim", 1, on="room", devices=(0,)),
        pod("heir", 1, priority=5),
        pod("holder", 1, on="claimed", devices=(last,)),
        pod("claimant"),
        pod("taker", 1),
        pod("mover", gpus, on="old", devices=tuple(range(gpus))),
        *(pod(name, 1, gang="gang") for name in _numbered("member", members)),
        pod("share-0", 1, gpu_milli=chance.randint(1, 500)),
        pod("share-1", 1, gpu_milli=500),
        pod("cpu", cpu_milli=chance.randint(1, 4000)),
        *(pod(f"hung-{n}", gang="hung", on=f"spread-{n}", cpu_milli=1) for n in range(members)),
    )
    content = Content(
        nodes,
        pods,
        (Gang("gang", members), Gang("hung", members)),
        (IdleClaim("claim", ("claimant",), 0.0, "holder"),),
        ("service",),
    ).plus(Content(scalers=(_scaler("web", 4),)))
    phases = [
        phase("scale", Scale("service", of_types({"A100": chance.randint(0, 3)}))),
        phase("replicas", SetReplicas("ns/web", _target("web"), chance.randint(0, 9), 4)),
        phase("release", ReleaseClaim("claim"), Bind("taker", "claimed", (last,))),
        phase("make room", Evict("victim", "room"), Bind("heir", "room", (0,))),
        phase("move", Move("mover", "old", "new", tuple(range(gpus)))),
        phase("gang", *(Bind(f"member-{n}", f"rack-{n}", (n % gpus,)) for n in range(members)), whole=True),
        phase(
            "quarantine",
            SetTaint("sick", "uid", UNHEALTHY_TAINT, "j.1"),
            Untaint("better", "uid", PROBATION_TAINT, "i.1"),
        ),
        phase("restart", RestartGang("hung", tuple((f"hung-{n}", "uid", f"spread-{n}") for n in range(members)))),
        phase("start", Bind("share-0", "mixed", (1,)), Bind("share-1", "mixed", (1,)), Bind("cpu", "mixed")),
    ]
    chance.shuffle(phases)
    return content, Plan(phases=tuple(phases))


def _target(name: str) -> ScaleTarget:
    return ScaleTarget("apps/v1", "Deployment", f"ns/{name}")


def _scaler(name: str, wanted: int | None = 4, **changes: object) -> Scaler:
    return scaler(wanted, name=f"ns/{name}", target=_target(name), **changes)


def _sets(code: str, replicas: int = 5, was: int = 4, *, name: str = "other", **changes: object) -> "Breaker":
    """A change of the replicas of `other`, whose scaler has these properties."""
    action = SetReplicas(f"ns/{name}", _target(name), replicas, was)
    return _alone(action, code, Content(scalers=(_scaler("other", **changes),)))  # type: ignore[arg-type]


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}-{n}" for n in range(count))


@dataclass(frozen=True)
class Seat:
    """A node on which, and devices with which, a pod must not start."""

    code: str
    ask: Mapping[str, object] = field(default_factory=lambda: {"gpus": 1})
    """Arguments of the pod."""
    node: Mapping[str, object] | None = field(default_factory=dict)
    """Arguments of the node; None: it does not exist."""
    devices: tuple[int, ...] = (0,)
    tenant: Mapping[str, object] | None = None
    """Arguments of a pod that runs on the node."""
    is_tight: bool = False


def _taint(effect: str) -> Seat:
    return Seat("NotEligible", node={"taints": (NodeTaint("spot", "yes", effect),)})


SEATS: Mapping[str, Callable[[Random], Seat]] = {
    "a node that does not exist": lambda _: Seat("NotFound", node=None),
    "a cordoned node": lambda _: Seat("NotEligible", node={"schedulable": False}),
    "another GPU type": lambda _: Seat("NotEligible", {"gpus": 1, "gpu_types": ["H100"]}),
    "other labels": lambda _: Seat("NotEligible", {"gpus": 1, "selector": {"zone": "a"}}, {"labels": {"zone": "b"}}),
    "a NoSchedule taint": lambda _: _taint("NoSchedule"),
    "a NoExecute taint": lambda _: _taint("NoExecute"),
    "a node with fewer GPUs": lambda _: Seat("NotEligible", {"gpus": 3}, devices=(0, 1, 2)),
    "too few devices": lambda chance: Seat("WrongDevices", {"gpus": 2}, devices=(chance.randint(0, 1),)),
    "too many devices": lambda _: Seat("WrongDevices", {"gpus": 1}, devices=(0, 1)),
    "one device twice": lambda _: Seat("WrongDevices", {"gpus": 2}, devices=(1, 1)),
    "no device": lambda _: Seat("WrongDevices", devices=()),
    "a device for a pod without GPUs": lambda _: Seat("WrongDevices", {"gpus": 0}),
    "a device beyond the node's": lambda chance: Seat("OverCapacity", devices=(chance.randint(2, 99),)),
    "a negative device": lambda chance: Seat("OverCapacity", devices=(-chance.randint(1, 8),)),
    "too little CPU": lambda chance: _short("cpu_milli", chance.randint(1, 64_000)),
    "too little memory": lambda chance: _short("memory_bytes", chance.randint(1, 64 * GIB)),
    "CPU that another pod holds": lambda chance: _short("cpu_milli", 4000, held=chance.randint(1, 4000)),
    "memory that another pod holds": lambda chance: _short("memory_bytes", GIB, held=chance.randint(1, GIB)),
    "a device that another pod holds": lambda _: Seat("OverCapacity", tenant={"gpus": 1, "devices": (0,)}),
    "a fraction that another pod holds": lambda chance: _shared(chance.randint(1, WHOLE_GPU_MILLI)),
    "a domain without power": lambda _: Seat("NoPowerHeadroom", is_tight=True),
}
"""Rules of a pod's seat, which Bind and Move share: each makes one broken alone."""


def _short(resource: str, asked: int, held: int = 0) -> Seat:
    """One unit less than is asked for is free, after what a tenant holds."""
    tenant = {resource: held} if held else None
    return Seat("OverCapacity", {resource: asked}, {resource: asked + held - 1}, (), tenant)


def _shared(asked: int) -> Seat:
    tenant = {"gpus": 1, "gpu_milli": WHOLE_GPU_MILLI - asked + 1, "devices": (0,)}
    return Seat("OverCapacity", {"gpus": 1, "gpu_milli": asked}, tenant=tenant)


def _content(seat: Seat, **home: object) -> Content:
    """The node of a seat with its tenant, and the pod `wrong`; home: where that pod is."""
    nodes = () if seat.node is None else (node("seat", 2, **seat.node),)
    one = {"cpu_milli": 0, "memory_bytes": 0}
    tenants = () if seat.tenant is None else (pod("tenant", on="seat", **one | dict(seat.tenant)),)  # type: ignore[arg-type]
    return Content(
        nodes,
        (pod("wrong", **one | dict(seat.ask), **home), *tenants),  # type: ignore[arg-type]
        tight=frozenset({"seat"} if seat.is_tight else ()),
    )


def _bind(make: Callable[[Random], Seat], chance: Random) -> Wrong:
    seat = make(chance)
    return Wrong(Bind("wrong", "seat", seat.devices), seat.code, _content(seat))


def _move(make: Callable[[Random], Seat], chance: Random) -> Wrong:
    seat = make(chance)
    held = tuple(range(int(str(seat.ask.get("gpus", 0)))))
    home = Content(nodes=(node("home", 3),))
    return Wrong(
        Move("wrong", "home", "seat", seat.devices), seat.code, _content(seat, on="home", devices=held).plus(home)
    )


RUNS = Content((node("here", 1), node("there", 1)), (pod("wrong", 1, on="here", devices=(0,)),))
WAITS = Content((node("here", 1), node("there", 1)), (pod("wrong", 1),))


def _half_gang(chance: Random, *, runs: int) -> Content:
    """A gang on nodes `seat-0`, …: `runs` of its members run, and it needs two at least."""
    size = chance.randint(2, 4)
    members = tuple(
        pod(f"part-{n}", 1, gang="half", **{"on": f"seat-{n}", "devices": (0,)} if n < runs else {})  # type: ignore[arg-type]
        for n in range(size)
    )
    return Content(tuple(node(name, 1) for name in _numbered("seat", size)), members, (Gang("half", 2),))


Breaker = Callable[[Random], Wrong]


def _alone(action: Action, code: str, content: Content | None = None) -> Breaker:
    return lambda _: Wrong(action, code, content or Content())


def _stops(of: Callable[[str, str], Action]) -> Mapping[str, Callable[[Random], Wrong]]:
    """Rules of stopping a pod, which Evict and Move share. of: the action that stops a pod on a node."""
    return {
        "stops a pod that does not exist": _alone(of("ghost", "here"), "NotFound", RUNS),
        "stops a pod that waits": _alone(of("wrong", "here"), "NotThere", WAITS),
        "stops a pod on a node where it is not": _alone(of("wrong", "there"), "NotThere", RUNS),
        "stops a pod on a node that does not exist": _alone(of("wrong", "nowhere"), "NotThere", RUNS),
    }


def _used_claim() -> Content:
    user = pod("user", 1, on="here", devices=(0,))
    return Content((node("here", 1),), (user, pod("waits")), (), (IdleClaim("used", ("waits", "user"), 0.0),))


def _holds(holder: str, node: str, code: str, content: Content, until_s: float = 60.0) -> Callable[[Random], Wrong]:
    seats = (HeldSeat(holder, node, (0,), 1000, 0, 0),)
    return _alone(HoldSeats(HeldSeats(holder, 0.0, until_s, seats)), code, content)


OUT = Content((node("out", 1, taints=(NodeTaint(UNHEALTHY_TAINT, "i.1"),)),))


def _stays(code: str, *budgets: DisruptionBudget, **marks: bool) -> Callable[[Random], Wrong]:
    """Stops a pod that is not to be stopped."""
    content = Content((node("here", 1),), (pod("wrong", 1, on="here", devices=(0,), **marks),), budgets=budgets)
    return _alone(Evict("wrong", "here"), code, content)


BREAKERS: Mapping[type[Action], Mapping[str, Callable[[Random], Wrong]]] = {
    Bind: {
        **{f"starts a pod on {rule}": partial(_bind, make) for rule, make in SEATS.items()},
        "starts a pod that does not exist": _alone(Bind("ghost", "here", (0,)), "NotFound", WAITS),
        "starts a pod that runs": _alone(Bind("wrong", "there", (0,)), "AlreadyBound", RUNS),
        "starts a part of a gang": lambda chance: Wrong(
            Bind("part-0", "seat-0", (0,)), "GangNotWhole", _half_gang(chance, runs=0)
        ),
    },
    Evict: {
        **_stops(Evict),
        "stops a pod of another scheduler": _stays("NotOursToStop", strangers=True),
        "stops a pod that asks to stay": _stays("NotToBeStopped", settled=True),
        "stops a pod against its budget": _stays("BudgetForbids", DisruptionBudget("ns/b", 0, ("wrong",))),
        "stops a part of a gang": lambda chance: Wrong(
            Evict("part-1", "seat-1"), "GangNotWhole", _half_gang(chance, runs=2)
        ),
    },
    Release: {
        "leaves a pod to kube-scheduler that does not exist": _alone(Release("ghost", "here", (0,)), "NotFound", WAITS),
        "leaves a pod to kube-scheduler where no pod of its own stands": lambda _: Wrong(
            Release("urgent", "here", (0,)),
            "OverCapacity",
            Content(
                (node("here", 1),),
                (pod("urgent", 1, priority=9), pod("wrong", 1, on="here", devices=(0,), priority=1)),
            ),
        ),
    },
    Move: {
        **_stops(lambda pod, from_node: Move(pod, from_node, "there", (0,))),
        **{f"moves a pod to {rule}": partial(_move, make) for rule, make in SEATS.items()},
    },
    Scale: {
        "scales a service that does not exist": _alone(Scale("ghost", of_types({"A100": 1})), "NotFound"),
        "scales a service below zero": lambda chance: Wrong(
            Scale("other", of_types({"A100": 1, "H100": -chance.randint(1, 9)})),
            "NegativeInstances",
            Content(services=("other",)),
        ),
        "scales a service beyond the fleet": lambda chance: Wrong(
            Scale("other", of_types({"A100": 10 ** chance.randint(4, 18)})),
            "TooManyInstances",
            Content(services=("other",)),
        ),
        "scales a service to a GPU type that the fleet does not have": _alone(
            Scale("other", of_types({"TPU": 1})), "TooManyInstances", Content(services=("other",))
        ),
        "takes the last instance of a service with demand": _alone(
            Scale("busy", of_types({"A100": 0})),
            "NoInstanceLeft",
            Content(services=("busy",), runs_one=frozenset({"busy"})),
        ),
    },
    SetReplicas: {
        "sets the replicas of a target without a policy": _sets("NotFound", name="ghost"),
        "sets replicas that were not observed": _sets("NotFound", wanted=None),
        "sets replicas that have changed since": _sets("ReplicasChanged", was=3),
        "sets the replicas of another autoscaler's target": _sets("AnotherAutoscaler", conflict="HPA/ns/other"),
        "sets replicas that it may only recommend": _sets("ModeForbids", mode="Recommend"),
        "takes replicas where it may only add": _sets("ModeForbids", 3, mode="ScaleUpOnly"),
        "sets more replicas than allowed": _sets("OutOfBounds", max_replicas=4),
        "sets fewer replicas than allowed": _sets("OutOfBounds", 3, min_replicas=4),
        "takes replicas without knowing the load": _sets("MetricsStale", 3, load=None),
    },
    SetTaint: {
        "taints a node that does not exist": _alone(SetTaint("ghost", "uid", UNHEALTHY_TAINT, "i.1"), "NotFound"),
        "sets a taint that is not ours": _alone(SetTaint("here", "uid", "other/taint", "i.1"), "NotOurs", WAITS),
        "sets a taint again": _alone(SetTaint("out", "uid", UNHEALTHY_TAINT, "i.1"), "AlreadyTainted", OUT),
    },
    Untaint: {
        "removes a taint that is not ours": _alone(Untaint("here", "uid", "other/taint", "i.1"), "NotOurs", WAITS),
        "removes a taint that is not there": _alone(Untaint("here", "uid", UNHEALTHY_TAINT, "i.1"), "NotThere", WAITS),
        "removes the taint of another incident": _alone(Untaint("out", "uid", UNHEALTHY_TAINT, "i.2"), "NotThere", OUT),
    },
    RestartGang: {
        "restarts a gang that does not exist": _alone(RestartGang("ghost", (("p", "u", "here"),)), "NotFound"),
        "restarts a part of a gang": lambda chance: Wrong(
            RestartGang("half", (("part-0", "u", "seat-0"),)), "NotAllMembers", _half_gang(chance, runs=2)
        ),
        "restarts a gang that does not run": lambda chance: Wrong(
            RestartGang("half", (("part-0", "u", "seat-0"),)), "NotAllMembers", _half_gang(chance, runs=0)
        ),
        "restarts a gang on nodes where it does not run": lambda chance: Wrong(
            RestartGang("half", (("part-0", "u", "seat-1"), ("part-1", "u", "seat-0"))),
            "NotThere",
            _half_gang(chance, runs=2),
        ),
    },
    HoldSeats: {
        "holds seats for a pod that does not exist": _holds("ghost", "here", "NotFound", WAITS),
        "holds seats for a pod that runs": _holds("wrong", "here", "AlreadyBound", RUNS),
        "holds seats on a node that does not exist": _holds("wrong", "nowhere", "NotFound", WAITS),
        "holds seats for ever": _holds("wrong", "here", "OutOfBounds", WAITS, until_s=1e12),
    },
    ReleaseClaim: {
        "releases a claim that does not exist": _alone(ReleaseClaim("ghost"), "NotFound"),
        "releases a claim that a running pod uses": _alone(ReleaseClaim("used"), "ClaimInUse", _used_claim()),
    },
}
"""By action, every rule of it that can be broken alone. The limits on a whole plan (its evictions, the age of the
observations) are broken in tests/properties/test_guard.py, those of nodes and gangs in
tests/unit/controller/deciders/test_remediation.py."""


def stops(plan: Plan) -> int:
    """Number of running pods that a plan stops or moves one by one; restarts of gangs have a limit of their own."""
    steps = (step for step in plan.steps() if not isinstance(step.action, RestartGang))
    return sum(change.node_before is not None for step in steps for change in step.action.seat_changes)


def inserted(plan: Plan, step: Step, chance: Random) -> tuple[Plan, int]:
    """The plan with one more step somewhere, often in a phase of its own; and the row of its phase."""
    at = chance.randrange(len(plan.phases))
    phases: Sequence[Phase]
    if chance.random() < 0.5:
        phases = (*plan.phases[:at], Phase("wrong", (step,)), *plan.phases[at:])
    else:
        steps, place = plan.phases[at].steps, chance.randint(0, len(plan.phases[at].steps))
        joined = replace(plan.phases[at], steps=(*steps[:place], step, *steps[place:]))
        phases = (*plan.phases[:at], joined, *plan.phases[at + 1 :])
    return replace(plan, phases=tuple(phases)), at
