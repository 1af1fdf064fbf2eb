"""Guard: the last check of a plan before it is applied. Steps that it removes are reported, not applied."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cluster import actions
from cluster.autoscaling import Scaler
from cluster.changes import OUR_TAINTS, taint_on, with_expected
from cluster.demand import ExpectedDemand
from cluster.held_seats import DEADLINE_S
from cluster.occupancy import Occupancy
from cluster.plans import Phase, Plan, PlanLimits, Reason, Refused, Step, Unplaced
from cluster.power_floors import PowerFloors
from cluster.snapshot import PENDING, Snapshot, device_mask
from cluster.workloads import CACHE, InstanceType

REASONS = (
    "AlreadyBound",
    "AlreadyTainted",
    "AnotherAutoscaler",
    "BudgetForbids",
    "ClaimInUse",
    "GangNotWhole",
    "MetricsStale",
    "ModeForbids",
    "NegativeInstances",
    "NoInstanceLeft",
    "NoPowerHeadroom",
    "NotAllMembers",
    "NotEligible",
    "NotFound",
    "NotOurs",
    "NotOursToStop",
    "NotThere",
    "NotToBeStopped",
    "NotWhole",
    "OutOfBounds",
    "OverCapacity",
    "ReplicasChanged",
    "StaleEvidence",
    "TooManyEvictions",
    "TooManyInstances",
    "TooManyInstancesStopped",
    "TooManyNodesOut",
    "TooManyRestarts",
    "TooManyStopsForSeat",
    "UnknownAction",
    "WrongDevices",
)
"""Codes with which the guard refuses steps. Their counters start at 0, so that the first refusal shows as a rise."""


Limits = PlanLimits
"""Limits of the guard; the defaults are those of the operator."""


class Guarded:
    """Cluster state during the check of a plan: the draft to which accepted steps apply themselves."""

    def __init__(self, snapshot: Snapshot, limits: Limits) -> None:
        self.limits = limits
        running = int((snapshot.pods.node != PENDING).sum())
        self.evictions_left = max(limits.max_evictions_floor, int(limits.max_evictions_share * running))
        self.evictions_most = self.evictions_left
        self.restarts_left = limits.max_restarts
        instances = sum(sum((service.replicas or {}).values()) for service in snapshot.services)
        self.stops_left = max(limits.max_evictions_floor, limits.max_stopped_share * instances)
        self.has_stopped = False
        """Whether a step before this one stops instances."""
        self.started: Counter[str] = Counter()
        """Devices of each GPU type that the steps before this one start instances on."""
        self.seats = Occupancy(snapshot, PowerFloors.of(snapshot))
        self._before = self.seats, self.seats.mark
        """Occupancy when this phase began, which a rewrite of the snapshot replaces, and its mark then."""
        self._is_whole, self._evictions_before = False, self.evictions_left

    @property
    def snapshot(self) -> Snapshot:
        return self.seats.snapshot

    def place(self, pod: str, node: str, devices: tuple[int, ...]) -> None:
        row = self.seats.row(pod)
        self.evictions_left -= bool(self.seats.node[row] != PENDING)
        self.seats.put(row, self.seats.where(node), device_mask(devices))

    def stop(self, pod: str) -> None:
        self.seats.put(self.seats.row(pod), PENDING, 0)
        self.evictions_left -= 1

    def now(self) -> Snapshot:
        return self.seats.now()

    def rewrite(self, snapshot: Snapshot) -> None:
        self.seats = Occupancy(snapshot, PowerFloors.of(snapshot))

    def begin_phase(self, *, is_whole: bool) -> None:
        self._before, self._evictions_before = (self.seats, self.seats.mark), self.evictions_left
        self._is_whole = is_whole

    def take_phase_back(self) -> None:
        """Restore the snapshot, and the node and devices that every pod had, when the phase began."""
        self.seats, mark = self._before
        self.seats.roll_back(mark)
        self.evictions_left = self._evictions_before

    def objection_to_stop(self, pod: str, node: str) -> Reason | None:
        if why := self.seats.objection_to_stop(pod, node):
            return why
        # A whole gang is one unit, which may pass the limit alone: a larger one would never start, nor be stopped.
        is_first = self._is_whole and self._evictions_before == self.evictions_most > 0
        if self.evictions_left <= 0 and not is_first:
            most = self.evictions_most
            words = f"this plan already stops {most} pods, the most that one plan may; the next one goes on"
            return Reason("TooManyEvictions", words, {"most": float(most)})
        return None

    def objection_to_beneficiary(self, unit: str) -> Reason | None:
        if unit not in self.snapshot.out_of_stops:
            return None
        words = f"as many pods as may be were stopped for {unit} within the hour, in vain"
        return Reason("TooManyStopsForSeat", words)

    def objection_to_move(self, move: actions.Move) -> Reason | None:
        if why := self.objection_to_beneficiary(move.beneficiary):
            return why
        if why := self.objection_to_stop(move.pod, move.from_node):
            return why
        return self.seats.objection_to_move(move.pod, move.node, move.devices)

    def broken_gangs(self, kept: list[Step]) -> Iterator[Reason]:
        """Gangs of which these steps would start only a part. A release that is taken back leaves what ran before."""
        pods, released = self.snapshot.pods, self.snapshot.released_at_s
        rows = [pods.names.row(c.pod) for step in kept for c in step.action.seat_changes if c.pod not in released]
        for gang in {int(pods.gang[row]) for row in rows if row is not None} - {-1}:
            wanted = self.snapshot.gangs[gang]
            runs = ((pods.gang == gang) & (self.seats.node != PENDING)).nonzero()[0].tolist()
            lacks = wanted.lacks([pods.names[row] for row in runs]) if runs else 0
            if lacks > 0:
                words = f"{wanted.name} would run with {len(runs)} members, but needs at least {len(runs) + lacks}"
                if wanted.groups:
                    words += f": {wanted.missing([pods.names[row] for row in runs])}"
                yield Reason("GangNotWhole", words, {"running": len(runs), "min_members": wanted.min_members})


MOST_PODS = 150_000
"""Instances of a service where neither nodes nor an inventory limit them. Source: Kubernetes documentation,
"Considerations for large clusters"."""


def most_instances(snapshot: Snapshot, instance_type: InstanceType) -> int:
    """Number of instances of one type that a fleet without any other pod would hold; cordoned nodes count."""
    width = instance_type.gpus
    if not width:  # a cache's memory: its service says how much
        return MOST_PODS
    if width < 1 or instance_type.gpu_type not in snapshot.gpu_type_names:
        return 0
    number = snapshot.gpu_type_names.index(instance_type.gpu_type)
    if len(snapshot.nodes):
        return int((snapshot.nodes.gpus[snapshot.nodes.gpu_type == number] // width).sum())
    inventory = snapshot.gpu_types[number].inventory
    return MOST_PODS if inventory is None else inventory // width


def _objection_to_taint(guarded: Guarded, action: actions.Taint) -> Reason | None:
    snapshot = guarded.snapshot
    if action.key not in OUR_TAINTS:
        return Reason("NotOurs", f"{action.key} is no taint of Tonnage's")
    if snapshot.nodes.names.row(action.node) is None:
        return Reason("NotFound", f"node {action.node} does not exist")
    present = taint_on(snapshot, action.node, action.key)
    if present is not None and present.value == action.value:
        return Reason("AlreadyTainted", f"{action.node} has this taint already")
    out = [any(each.key in OUR_TAINTS for each in taints) for taints in snapshot.nodes.taints]
    most = max(1, int(guarded.limits.max_nodes_out_share * len(out)))
    if not any(taint_on(snapshot, action.node, key) for key in OUR_TAINTS) and sum(out) >= most:
        words = f"{sum(out)} nodes are out by Tonnage's hand already, of at most {most}"
        return Reason("TooManyNodesOut", words, {"out": float(sum(out)), "most": float(most)})
    return None


def _objection_to_untaint(guarded: Guarded, action: actions.Untaint) -> Reason | None:
    if action.key not in OUR_TAINTS:
        return Reason("NotOurs", f"{action.key} is no taint of Tonnage's")
    present = taint_on(guarded.snapshot, action.node, action.key)
    if present is None or present.value != action.value:
        return Reason("NotThere", f"{action.node} has no taint {action.key}={action.value}")
    return None


def _objection_to_evict(guarded: Guarded, action: actions.Evict) -> Reason | None:
    why = guarded.objection_to_beneficiary(action.beneficiary)
    return why or guarded.objection_to_stop(action.pod, action.node)


def _objection_to_hold(guarded: Guarded, action: actions.HoldSeats) -> Reason | None:
    if guarded.evictions_most <= 0:
        return Reason("TooManyEvictions", "no pod may be stopped, so that nothing is waited for")
    row, nodes = guarded.snapshot.pods.names.row(action.held.holder), guarded.snapshot.nodes.names
    if row is None or guarded.seats.node[row] != PENDING:
        words = f"{action.held.holder} does not wait"
        return Reason("NotFound" if row is None else "AlreadyBound", words)
    if unknown := [seat.node for seat in action.held.seats if nodes.row(seat.node) is None]:
        return Reason("NotFound", f"node {unknown[0]} does not exist")
    if not guarded.snapshot.at_s < action.held.until_s <= guarded.snapshot.at_s + DEADLINE_S:
        return Reason("OutOfBounds", f"seats are held for {DEADLINE_S:g} s at most")
    return None


def _objection_to_restart(guarded: Guarded, action: actions.RestartGang) -> Reason | None:
    pods, named = guarded.snapshot.pods, {pod for pod, _, _ in action.pods}
    found = next((each for each in enumerate(guarded.snapshot.gangs) if each[1].name == action.gang), None)
    if found is None:
        return Reason("NotFound", f"gang {action.gang} does not exist")
    member = pods.gang == found[0]
    running = {pods.names[row] for row in (member & (guarded.seats.node != PENDING)).nonzero()[0].tolist()}
    is_cut = running > named and found[1].lacks(running - named) > 0
    if is_cut or not running >= named or not named or len(named) != len(action.pods):
        words = f"{len(action.pods)} pods are named, and {len(running)} members of {action.gang} run: the rest must do"
        return Reason("NotAllMembers", words)
    if why := guarded.seats.objection_to_stops([(pod, node) for pod, _, node in action.pods]):
        return why
    if guarded.restarts_left <= 0:
        return Reason("TooManyRestarts", "this plan already restarts the maximum number of gangs")
    guarded.restarts_left -= 1
    guarded.evictions_left += len(action.pods)  # which stopping them takes off again: gangs have a limit of their own
    return None


def _objection_to_scale(guarded: Guarded, scale: actions.Scale) -> Reason | None:
    if why := guarded.seats.objection_to_scale(scale.service):
        return why
    if any(count < 0 for count in scale.instances.values()):
        return Reason("NegativeInstances", f"{scale.values()['instances']} contains a negative number")
    snapshot = guarded.snapshot
    service = next(each for each in snapshot.services if each.name == scale.service)
    now = service.replicas or {}
    for instance_type, count in scale.instances.items():
        most = most_instances(snapshot, instance_type)
        if count > max(most, now.get(instance_type, 0)):
            words = f"{count} instances of {instance_type} are wanted, and the fleet holds at most {most}"
            return Reason("TooManyInstances", words, {"wanted": float(count), "most": float(most)})
    has_demand = service.demand is not None and service.demand.rate_per_s > 0 and service.phase != CACHE
    # The other mode of a service, together or by phase, has instances for all that this one's do.
    whole = service.part_of or service.name
    others = [s for s in snapshot.services if (s.name == whole if service.part_of else s.part_of == whole)]
    others = [s for s in others if s.phase != CACHE]
    has_demand &= not others or not all(any((each.replicas or {}).values()) for each in others)
    if has_demand and any(now.values()) and not any({**now, **scale.instances}.values()):
        return Reason("NoInstanceLeft", f"{scale.service} has demand, and would lose its last instance")
    # What the plan starts or stops with this step.
    more = {each: count - now.get(each, 0) for each, count in scale.instances.items()}
    started = Counter[str]()
    for each, count in more.items():
        if count <= 0:
            continue
        started[each.gpu_type] += count * each.gpus
        wanted = guarded.started[each.gpu_type] + started[each.gpu_type]
        single = InstanceType(each.gpu_type)
        most = max(most_instances(guarded.snapshot, single), each.gpus * most_instances(guarded.snapshot, each))
        if wanted > most:
            words = f"this plan starts instances on {wanted} {each.gpu_type}, and the fleet has {most}"
            return Reason("TooManyInstances", words, {"wanted": float(wanted), "most": float(most)})
    stopped = -sum(count for count in more.values() if count < 0)
    # A service alone may change, or one that is larger than the share could never be planned anew.
    if stopped > guarded.stops_left and guarded.has_stopped:
        words = "this plan already stops as many instances as one plan may; the next one goes on"
        return Reason("TooManyInstancesStopped", words, {"stopped": float(stopped)})
    guarded.started.update(started)
    guarded.stops_left -= stopped
    guarded.has_stopped = guarded.has_stopped or stopped > 0
    return None


def _objection_to_set_replicas(guarded: Guarded, action: actions.SetReplicas) -> Reason | None:
    snapshot = guarded.snapshot
    scaler = next((each for each in snapshot.scalers if each.name == action.policy), None)
    if scaler is None or scaler.replicas is None or scaler.target != action.target:
        return Reason("NotFound", f"no ScalingPolicy {action.policy} with an observed target {action.target}")
    if scaler.replicas.wanted != action.was:
        words = f"{action.target} asks for {scaler.replicas.wanted} replicas, not for {action.was} as decided on"
        return Reason("ReplicasChanged", words, {"wanted": scaler.replicas.wanted, "was": action.was})
    if why := _objection_to_scaling(scaler, more=action.replicas >= action.was):
        return why
    if not scaler.min_replicas <= action.replicas <= scaler.max_replicas:
        words = f"{action.replicas} replicas are outside {scaler.min_replicas} to {scaler.max_replicas}"
        return Reason("OutOfBounds", words, {"replicas": action.replicas})
    is_stale = scaler.load is None or snapshot.at_s - scaler.observed_at_s >= scaler.max_age_s
    if action.replicas < action.was and is_stale:
        return Reason("MetricsStale", f"the load of {action.target} is not known now: nothing is scaled down")
    return None


def _objection_to_scaling(scaler: Scaler, *, more: bool) -> Reason | None:
    """Why a policy may not change its target at all, or not in this direction."""
    if scaler.conflict:
        return Reason("AnotherAutoscaler", f"{scaler.conflict} scales {scaler.target}, too")
    if scaler.mode in ("Off", "Recommend") or (scaler.mode == "ScaleUpOnly" and not more):
        return Reason("ModeForbids", f"{scaler.name} is in mode {scaler.mode}")
    return None


def permitted(snapshot: Snapshot, expected: tuple[ExpectedDemand, ...]) -> tuple[ExpectedDemand, ...]:
    """Expected demands that a policy in force stands behind, within its bounds; plans are not trusted."""
    # A service may have further policies that only recommend, or are off.
    most = {
        each.target.name: each.max_replicas * each.replica_load * (1 + 1e-9)
        for each in snapshot.scalers
        if each.target.kind == "ModelService" and _objection_to_scaling(each, more=True) is None
    }
    return tuple(each for each in expected if 0 <= each.demand.rate_per_s <= most.get(each.service, -1.0))


Objection = Callable[[Guarded, Any], Reason | None]
"""Function that returns why an action must not be applied after the steps before it; None if it may."""

OBJECTIONS: Mapping[type[actions.Action], Objection] = {
    actions.Bind: lambda guarded, bind: guarded.seats.objection_to_bind(bind.pod, bind.node, bind.devices),
    actions.Evict: _objection_to_evict,
    actions.HoldSeats: _objection_to_hold,
    actions.Move: Guarded.objection_to_move,
    actions.Release: lambda guarded, release: guarded.seats.objection_to_leave(
        release.pod, release.node, release.devices
    ),
    actions.ReleaseClaim: lambda guarded, release: guarded.seats.objection_to_release(release.claim),
    actions.RestartGang: _objection_to_restart,
    actions.Scale: _objection_to_scale,
    actions.SetReplicas: _objection_to_set_replicas,
    actions.Taint: _objection_to_taint,
    actions.Untaint: _objection_to_untaint,
}
"""Rule of the guard for each action. Actions without a rule are refused."""


def guard(
    snapshot: Snapshot, plan: Plan, limits: Limits, objections: Mapping[type[actions.Action], Objection] = OBJECTIONS
) -> Plan:
    """The plan without the steps that must not be applied; those are in `refused`, each with its reason.

    Checks every step against the cluster after the steps before it: existence, eligibility, capacity of every device,
    whole gangs, instances that the fleet can hold, the limit on evictions, and the age of the observations.
    """
    expected = permitted(snapshot, plan.expected)
    if not plan.phases:
        return replace(plan, expected=expected)
    guarded = Guarded(with_expected(snapshot, expected) if expected else snapshot, limits)
    stale: Reason | None = None
    if (age_s := snapshot.age_s("pods")) > limits.max_age_s:
        stale = Reason("StaleEvidence", f"the pods were last observed {age_s:.0f} s ago", {"age_s": age_s})
    phases: list[Phase] = []
    refused: list[Refused] = []
    unplaced: dict[str, Reason] = {}
    for phase in plan.phases:
        guarded.begin_phase(is_whole=phase.whole)
        kept: list[Step] = []
        struck: list[Refused] = []
        for step in phase.steps:
            why, objection = stale, objections.get(type(step.action))
            if objection is None:
                why = why or Reason("UnknownAction", f"the guard has no rule for {type(step.action).__name__}")
            elif why is None and (why := objection(guarded, step.action)) is None:
                step.action.after(guarded)
                kept.append(step)
                continue
            if why is not None:
                struck.append(Refused(step, why))
        broken = next(guarded.broken_gangs(kept), None)
        if phase.whole and struck:
            broken = Reason("NotWhole", f"{phase.name} is all or nothing, and one of its steps was refused")
        if broken is not None:
            unplaced.update(_kept_waiting(phase, struck))
            guarded.take_phase_back()
            struck += [Refused(step, broken) for step in kept]
        elif kept:
            phases.append(replace(phase, steps=tuple(kept)))
        refused += struck
    told = tuple(each for each in plan.unplaced if each.workload not in unplaced)
    return replace(
        plan,
        phases=tuple(phases),
        unplaced=(*told, *(Unplaced(unit, why) for unit, why in unplaced.items())),
        refused=plan.refused + tuple(refused),
        expected=expected,
    )


def _kept_waiting(phase: Phase, struck: Iterable[Refused]) -> Iterator[tuple[str, Reason]]:
    """Units of a phase for which the limit on evictions allows no stop now, with the reason why they wait."""
    stops = [step.action for step in phase.steps if isinstance(step.action, actions.Evict)]
    for why in [each.reason for each in struck if each.reason.code == "TooManyEvictions"][:1]:
        for unit in dict.fromkeys(each.beneficiary for each in stops if each.beneficiary):
            words = f"{len(stops)} pods of lower priority make room for it; {why.words}"
            yield unit, Reason(why.code, words, {"stops": float(len(stops)), **why.figures})
