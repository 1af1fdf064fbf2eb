"""Facts of the autoscaler: what was measured of each policy and its target, added to the snapshot's scalers."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from cluster.snapshot import Snapshot
from controller.api.model_service import KIND as SERVICE
from controller.api.scaling_policy import ScalingPolicy
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.targets import TargetState
from controller.snapshot.scalers import PolicyState, scaler_of, state_in, with_conflicts

REQUEST_ROLES = ("load", "requests")
"""Roles that can be the load of a ModelService, in requests per second."""


def with_measured(
    snapshot: Snapshot,
    policies: Mapping[str, ScalingPolicy],
    measured: Measured,
    target_of: Callable[[str], TargetState],
    conflict_with: Callable[[ScalingPolicy], str],
) -> Snapshot:
    """The snapshot with each scaler as it was measured.

    target_of: by the policy's name. conflict_with: another autoscaler of a policy's target.
    """
    scalers = []
    for scaler in snapshot.scalers:
        policy = policies.get(scaler.name)
        if policy is not None:
            state = state_of(
                scaler.name, policy, measured, target_of(scaler.name), conflict_with(policy), snapshot.at_s
            )
            scaler = scaler_of(scaler.name, policy, snapshot, state)
        scalers.append(scaler)
    return replace(snapshot, scalers=with_conflicts(scalers))


def state_of(
    name: str, policy: ScalingPolicy, measured: Measured, target: TargetState, conflict: str, at_s: float
) -> PolicyState:
    """State of a policy: measurements of this process, and until there are any those in its status.

    at_s: now. A status of the future is of a clock that was set back, or of another leader's.
    """
    state = state_in(policy.status)
    known, role = measured.of(name), policy.spec.demand.load.role
    newest, failure = known.newest.get(role), known.failures.get(role)
    if newest is not None and (newest.at_s >= state.observed_at_s or state.observed_at_s > at_s):
        state = replace(state, load=newest.value, observed_at_s=newest.at_s)
    problem = target.problem
    if policy.spec.target.kind == SERVICE.name and role not in REQUEST_ROLES:
        problem = f"NoRequestRate: a {SERVICE.name} needs a source of role requests, not only of {role}"
    return replace(
        state,
        forecast=known.forecast or state.forecast,
        lengths=None if known.lengths is None else (known.lengths.grid, known.lengths.share),
        replicas=target.replicas,
        took_s=target.took_s or state.took_s,
        plural=target.plural,
        conflict=conflict,
        skill=known.skill,
        source_problem="" if failure is None else f"{failure.code}: {failure.words}",
        problem=problem,
        serving=known.serving,
        serving_problem=known.serving_problem,
        changed_at_s=target.changed_at_s,
        pods=target.pods,
    )
