"""ScalingPolicies as objects: read once per version, their rivals, and what was measured of them as facts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from autoscaler.demand.presets import Role
from cluster.snapshot import Snapshot
from controller.api.model_service import KIND as SERVICE
from controller.api.scaling_policy import KIND, ScalingPolicy, Target
from controller.api.structs import Meta, OwnObject, Slim
from controller.kube.cache import Cache, Resource
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.targets import TargetState
from controller.objects.own_objects import own_from
from controller.objects.read import Read
from controller.snapshot.namespace_bounds import first_by_name
from controller.snapshot.scalers import MOST_POLICIES, PolicyState, scaler_of, state_in, with_conflicts

REQUEST_ROLES = ("load", "requests")
"""Roles that can be the load of a ModelService, in requests per second."""


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """Recommended replicas of a ScalingPolicy."""

    namespace: str
    policy: str
    target: str
    """Name of the target."""
    replicas: int
    at_s: float
    """Instant at which they were known, seconds since the epoch."""

    @property
    def labels(self) -> Mapping[str, str]:
        return {"policy": self.policy, "target": self.target}


class PolicyReader:
    """Valid policies that are evaluated, by `namespace/name`; it remembers what it read. Thread-safe."""

    def __init__(self, cache: Cache[OwnObject]) -> None:
        self._cache = cache
        self._lock = Lock()
        self._read: dict[str, tuple[OwnObject, ScalingPolicy | None]] = {}

    def all(self) -> Mapping[str, ScalingPolicy]:
        with self._lock:
            objects = self._cache.all()
            for name, obj in objects.items():
                known = self._read.get(name)
                if known is None or known[0] is not obj:
                    read = own_from(name, KIND, obj)
                    self._read[name] = (obj, read.object if isinstance(read, Read) else None)
            self._read = {name: each for name, each in self._read.items() if name in objects}
            valid = {name: policy for name, (_, policy) in sorted(self._read.items()) if policy is not None}
        within = first_by_name(valid, MOST_POLICIES)
        return {name: policy for name, policy in valid.items() if name in within}

    def desired(self, now_s: float) -> Iterator[DesiredReplicas]:
        """Recommendations that the leader wrote."""
        return desired_replicas(self.all().values(), now_s)

    def pushed_roles(self, name: str) -> tuple[Role, ...] | None:
        """Roles that a policy lets be pushed; None: there is no such policy."""
        policy = self.all().get(name)
        if policy is None or policy.spec.mode == "Off":
            return None
        return tuple(source.role for source in policy.spec.demand.sources if source.push is not None)


def desired_replicas(policies: Iterable[ScalingPolicy], now_s: float) -> Iterator[DesiredReplicas]:
    """Recommendations; a policy that has none, or is off, is left out: missing is not zero."""
    for policy in policies:
        replicas, spec, metadata = policy.own_status.recommended_replicas, policy.spec, policy.metadata
        if replicas is not None and spec.mode != "Off":
            at_s = policy.own_status.load_time or now_s
            yield DesiredReplicas(metadata.namespace, metadata.name, spec.target.name, replicas, at_s)


class Reference(Slim, frozen=True):
    """Target or owner of an autoscaler."""

    kind: str
    name: str
    api_version: str = ""


class HpaSpec(Slim, frozen=True):
    scale_target_ref: Reference


class HpaMeta(Meta, frozen=True):
    owner_references: tuple[Reference, ...] = ()


class Hpa(Slim, frozen=True):
    """HorizontalPodAutoscaler (autoscaling/v2)."""

    metadata: HpaMeta
    spec: HpaSpec


HPAS = Resource("autoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers", Hpa)
_Key = tuple[str, str, str, str]
"""Namespace, API group, kind and name of a target. Versions of one API group are the same object."""
Conflicts = Mapping[_Key, str]
"""Autoscaler of each target, as `Kind/namespace/name`."""


def conflicts_of(hpas: Iterable[Hpa]) -> Conflicts:
    """What these autoscalers scale; of several with one target the first by name.

    KEDA scales through an HPA that its ScaledObject owns; then that is named, which its users know.
    """
    found: dict[_Key, str] = {}
    for hpa in sorted(hpas, key=lambda each: each.metadata.name):
        ref = hpa.spec.scale_target_ref
        keda = next((owner for owner in hpa.metadata.owner_references if owner.kind == "ScaledObject"), None)
        kind, name = ("HorizontalPodAutoscaler", hpa.metadata.name) if keda is None else (keda.kind, keda.name)
        key = _key(hpa.metadata.namespace, ref.api_version, ref.kind, ref.name)
        found.setdefault(key, f"{kind}/{hpa.metadata.namespace}/{name}")
    return found


def conflict_of(target: Target, namespace: str, conflicts: Conflicts) -> str:
    """Autoscaler of a policy's target; empty: none."""
    return conflicts.get(_key(namespace, target.api_version, target.kind, target.name), "")


def _key(namespace: str, api_version: str, kind: str, name: str) -> _Key:
    return namespace, api_version.rpartition("/")[0], kind, name


def with_measured(
    snapshot: Snapshot,
    policies: Mapping[str, ScalingPolicy],
    measured: Measured,
    target_of: Callable[[str], TargetState],
    conflicts: Conflicts,
) -> Snapshot:
    """The snapshot with each scaler as it was measured. target_of: by the policy's name."""
    scalers = []
    for scaler in snapshot.scalers:
        policy = policies.get(scaler.name)
        if policy is not None:
            conflict = conflict_of(policy.spec.target, policy.metadata.namespace, conflicts)
            state = state_of(scaler.name, policy, measured, target_of(scaler.name), conflict, snapshot.at_s)
            scaler = scaler_of(scaler.name, policy, snapshot, state)
        scalers.append(scaler)
    return replace(snapshot, scalers=with_conflicts(scalers))


def state_of(
    name: str, policy: ScalingPolicy, measured: Measured, target: TargetState, conflict: str, at_s: float
) -> PolicyState:
    """State of a policy: measurements of this process, and until there are any those in its status.

    at_s: now. A status of the future is of a clock that was set back, or of another leader's.
    """
    state = state_in(policy.own_status)
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
        ready=target.ready,
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
