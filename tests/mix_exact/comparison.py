"""Plans of random fleets with services beside an exact model of the mix.

The plan is what `tonnage plan -f` makes of the same manifests. It must serve the same services, at a cost within the
gap that it states, above a bound that is below the optimum, and every instance must have a node.
"""

import io
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.inputs.planning import decider
from cluster.changes import instance_type_of
from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import InstanceType
from controller.objects.manifests import read_manifests
from controller.settings import OperatorSettings, settings_from
from controller.snapshot.from_manifests import snapshot_from
from tests.mix_exact.fleets import Manifest, Switches, random_manifests
from tests.mix_exact.oracle import Counts, Exact, Fleet, fleet_of, have_seats, solve_exactly

TOLERANCE = 1e-4
"""Relative; the solvers of both sides work to 1e-6."""
GAP = 0.001
"""Gap at which the planner stops (`MixSettings.gap`)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One fleet: its plan beside its optimum."""

    seed: int
    services: int
    served: int
    objective: float
    exact: float
    gap: float
    """As the plan states it."""
    seconds: float
    """Of the processor, for the plan."""
    disagreements: tuple[str, ...]


def compare(seed: int, switches: Switches, *, deadline_s: float | None = None) -> Comparison:
    """The fleet of that seed."""
    manifests = random_manifests(seed, switches)
    settings = settings_from({} if deadline_s is None else {"plan_deadline_s": deadline_s})
    began_s = time.process_time()
    snapshot, plan = planned(manifests, settings)
    seconds = time.process_time() - began_s
    fleet = fleet_of(manifests)
    exact = solve_exactly(fleet)
    certificate = plan.certificates.get("mix")
    return Comparison(
        seed=seed,
        services=len(fleet.services),
        served=len(exact.served),
        objective=certificate.objective if certificate else 0.0,
        exact=exact.objective,
        gap=certificate.gap if certificate else 0.0,
        seconds=seconds,
        disagreements=tuple(disagreements(fleet, snapshot, plan, exact)),
    )


def planned(manifests: Sequence[Manifest], settings: OperatorSettings) -> tuple[Snapshot, Plan]:
    """What `tonnage plan -f` makes of these manifests."""
    snapshot = observed(manifests)
    return snapshot, decider(settings)(snapshot)


def observed(manifests: Sequence[Manifest]) -> Snapshot:
    """Snapshot of the cluster that these manifests describe."""
    text = io.StringIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}))
    return snapshot_from(read_manifests(["-"], text)).snapshot


def disagreements(fleet: Fleet, snapshot: Snapshot, plan: Plan, exact: Exact) -> Iterator[str]:
    """Differences between a plan and the optimum, in words."""
    served = {each.service for each in plan.services if each.refusal is None}
    if served != set(exact.served):
        refused = [f"{p.service} ({p.refusal.code})" for p in plan.services if p.refusal is not None]
        yield f"refuses {', '.join(refused) or 'none'}; the exact model serves {', '.join(exact.served) or 'none'}"
        return
    certificate = plan.certificates.get("mix")
    if certificate is not None:
        slack = TOLERANCE * max(1.0, exact.objective)
        if certificate.objective < exact.objective - slack:
            yield f"costs {certificate.objective:.4f}, less than the optimum {exact.objective:.4f}"
        if certificate.bound > exact.objective + slack:
            yield f"claims a bound of {certificate.bound:.4f}, above the optimum {exact.objective:.4f}"
        if certificate.objective > max(exact.objective / (1 - max(certificate.gap, GAP)), 0) + slack:
            yield f"costs {certificate.objective:.4f}, beyond its gap of the optimum {exact.objective:.4f}"
    if fleet.nodes:
        yield from _seats_missing(fleet, snapshot, plan)
    if not have_seats(fleet, counts_of(plan)):
        yield "sells instances that have no seats in any arrangement, or that do not serve the demand"


def counts_of(plan: Plan) -> Counts:
    """Instances of every served service, by GPU type and width, on nodes of any capacity type."""
    counts: dict[str, Counter[tuple[str, int]]] = {p.service: Counter() for p in plan.services if p.refusal is None}
    for each in plan.services:
        for kind, count in each.instances.items():
            counts[each.service][kind.gpu_type, kind.gpus] += count
    return counts


def _seats_missing(fleet: Fleet, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Instances that the plan itself leaves without a node, and nodes that it fills beyond what they have."""
    pods = snapshot.after(plan.actions).pods
    seated = Counter[tuple[str, InstanceType]]()
    used = Counter[str]()
    for row, owner in enumerate(pods.owner):
        if owner and pods.node[row] != PENDING:
            shape = pods.shapes[pods.shape[row]]
            kind = instance_type_of(shape)
            assert kind is not None, f"{owner} may run on several GPU types"
            seated[owner, kind] += 1
            used[snapshot.nodes.names[int(pods.node[row])]] += shape.gpus
    for each in plan.services:
        for name, count in each.instances.items():
            if each.refusal is None and seated[each.service, name] != count:
                yield f"{each.service}: {count} x {name} sold, {seated[each.service, name]} seated"
    for node in fleet.nodes:
        if used[node.name] > node.gpus:
            yield f"{node.name}: {used[node.name]} devices of {node.gpus} used"
