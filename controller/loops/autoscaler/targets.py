"""Targets of ScalingPolicies: their scale subresources and the readiness of their pods, read regularly."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from cluster.autoscaling import MOST_ORDERED, Replicas
from cluster.clock import Clock
from cluster.errors import UNREADABLE, ObservationError
from cluster.workloads import CACHE, InstanceType
from controller.api import labels, notation, scaling_policy, structs
from controller.api.model_service import KIND as SERVICE
from controller.fair_shares import FairTurns
from controller.kube import api_server, discovery, request
from controller.kube_world.cached_view import InstanceLabels

MOST_STARTS = 200
"""Observed starts that are remembered."""


class _Condition(structs.Slim, frozen=True):
    type: str
    status: str
    last_transition_time: str | None = None


class _ContainerStatus(structs.Slim, frozen=True):
    restart_count: int = 0


class _PodMeta(structs.Meta, frozen=True):
    creation_timestamp: str | None = None
    labels: InstanceLabels = InstanceLabels()


class _PodStatus(structs.Slim, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class TargetPod(structs.Slim, frozen=True):
    """Pod of a target, as far as its readiness is concerned.

    It is read when needed, not watched: labels and conditions of all pods of a fleet would take more memory than all
    that planning knows of them.
    """

    metadata: _PodMeta
    status: _PodStatus = _PodStatus()

    @property
    def counts(self) -> bool:
        """Whether it is a replica: not ended, and not being stopped."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ("Succeeded", "Failed")

    @property
    def created_at_s(self) -> float:
        return notation.instant(self.metadata.creation_timestamp)

    @property
    def ready_at_s(self) -> float | None:
        """When it became ready; None: it is not."""
        ready = next((each for each in self.status.conditions if each.type == "Ready"), None)
        return notation.instant(ready.last_transition_time) if ready is not None and ready.status == "True" else None

    @property
    def was_restarted(self) -> bool:
        """Whether a container was restarted: its readiness then says nothing about the start of a replica."""
        return any(each.restart_count for each in self.status.container_statuses)


class Starts:
    """Replicas of one target over time: what is awaited, and the starts that finished."""

    def __init__(self, since_s: float, learned: Iterable[float] = ()) -> None:
        """since_s: begin of the observation, seconds since the epoch. learned: earlier lead times, oldest first."""
        self._since_s = since_s
        self._known: set[str] = set()
        self._has_seen = False
        self.changed_at_s = -math.inf
        """Last change among the pods that are ready, seconds since the epoch."""
        self._missing_since_s: float | None = None
        self.took_s = deque(learned, maxlen=MOST_STARTS)

    def see(self, wanted: int, pods: Iterable[TargetPod], at_s: float) -> Replicas:
        """Replicas by the pods that exist now."""
        there = [pod for pod in pods if pod.counts]
        ready = {pod.metadata.uid: pod.ready_at_s for pod in there if pod.ready_at_s is not None}
        if not self._has_seen:
            self.changed_at_s = max(ready.values(), default=at_s)
        elif set(ready) != self._known:
            self.changed_at_s = at_s
        self._has_seen = True
        for pod in sorted(there, key=lambda each: each.ready_at_s or 0.0):
            ready_at_s = ready.get(pod.metadata.uid)
            # Starts that finished before the observation began are in the status.
            is_new = pod.metadata.uid not in self._known and ready_at_s is not None and ready_at_s >= self._since_s
            if is_new and ready_at_s is not None and not pod.was_restarted:
                self.took_s.append(max(0.0, ready_at_s - pod.created_at_s))
        self._known = set(ready)
        waiting = [pod.created_at_s for pod in there if pod.ready_at_s is None]
        missing = max(0, wanted - len(there))
        if not missing:
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = at_s
        ordered = sorted([*waiting, *[self._missing_since_s or at_s] * min(missing, MOST_ORDERED)])
        count = min(len(ready), wanted)
        # More pods than wanted are on their way out: those that wait are not awaited.
        return Replicas(wanted, count, tuple(ordered[: min(wanted - count, MOST_ORDERED)]), at_s)


AT_ONCE = 8
"""Most requests at once, at most half of them for one namespace."""
DISCOVER_EVERY_S = 60.0
"""Shortest time between two discoveries for a kind that is not known."""
PODS_EVERY_S = 60.0
"""Longest time between two readings of the pods of a target whose replicas are all ready."""
UNREAD_AFTER_S = 120.0
"""Age from which the last reading of a target counts no more."""


Discover = Callable[[], Awaitable[discovery.Discovered]]
"""Reads which kinds the API server has. Raises ObservationError."""


class KnownKinds:
    """Resources of the API server by kind, discovered again for one that is not known, at most once a minute."""

    def __init__(self, discover: Discover, clock: Clock) -> None:
        """clock: seconds."""
        self._discover, self._clock = discover, clock
        self._resources: discovery.Discovered | None = None
        self._discovered_at_s = -DISCOVER_EVERY_S

    async def of_kind(self, target: scaling_policy.Target) -> discovery.ApiResource | None:
        """Resource of a target's kind; None: the server has none. Raises ObservationError."""
        found = self._resources.of_kind(target.api_version, target.kind) if self._resources else None
        if found is None and self._clock() - self._discovered_at_s >= DISCOVER_EVERY_S:
            self._discovered_at_s = self._clock()
            self._resources = await self._discover()
            found = self._resources.of_kind(target.api_version, target.kind)
        if self._resources is None:  # the last discovery failed
            raise ObservationError("the kinds of the API server cannot be read")
        return found


class _ScaleSpec(structs.Slim, frozen=True):
    replicas: int = 0


class _ScaleStatus(structs.Slim, frozen=True):
    replicas: int = 0
    selector: str = ""


class _Scale(structs.Slim, frozen=True):
    """Scale (autoscaling/v1)."""

    spec: _ScaleSpec = _ScaleSpec()
    status: _ScaleStatus = _ScaleStatus()


@dataclass(frozen=True, slots=True)
class TargetState:
    """State of one policy's target."""

    replicas: Replicas | None = None
    """Last reading; None: none yet, or the target cannot be read."""
    plural: str = ""
    took_s: tuple[float, ...] = ()
    """Observed lead times, oldest first, seconds."""
    changed_at_s: float = -math.inf
    """Last change among the pods that are ready, seconds since the epoch; that of a target whose pods are not known is
    not known either."""
    pods: tuple[str, ...] = ()
    """Names of the pods that are its replicas, as `namespace/name`."""
    ready: Mapping[InstanceType, int] = field(default_factory=dict)
    """Instances of a ModelService that are ready, by type."""
    problem: str = ""
    """Why it cannot be read, as `Code: words`."""


@dataclass(slots=True)
class _Known:
    starts: Starts
    target: scaling_policy.Target
    pods_at_s: float = 0.0
    pods: tuple[TargetPod, ...] = ()


class Targets:
    """States of all targets. It reads in the connection's event loop; any thread may ask for a state."""

    def __init__(self, connection: api_server.ApiServer, kinds: KnownKinds, clock: Clock) -> None:
        """clock: seconds since the epoch."""
        self._connection, self._kinds, self._clock = connection, kinds, clock
        self._turns = FairTurns(AT_ONCE)
        self._known: dict[str, _Known] = {}
        self._states: Mapping[str, TargetState] = {}

    def state(self, policy: str) -> TargetState:
        """State of the target of a policy (`namespace/name`); empty before it was read."""
        return self._states.get(policy, TargetState())

    async def turn(self, policies: Mapping[str, scaling_policy.ScalingPolicy]) -> None:
        """Reads every target once. One that cannot be read keeps its last reading, until that is too old."""
        wanted = {name: policy for name, policy in policies.items() if policy.spec.mode != "Off"}
        self._known = {name: known for name, known in self._known.items() if name in wanted}
        states = await asyncio.gather(*(self._state(name, policy) for name, policy in wanted.items()))
        self._states = dict(zip(wanted, states, strict=True))

    async def _state(self, name: str, policy: scaling_policy.ScalingPolicy) -> TargetState:
        known, target = self._known.get(name), policy.spec.target
        if known is None or known.target != target:
            status = policy.own_status
            learned = status.lead_time.learned if status.lead_time else ()
            known = self._known[name] = _Known(Starts(self._clock(), learned), target)
        try:
            async with self._turns.turn(policy.metadata.namespace):
                return await self._read(policy, known)
        except (ObservationError, *UNREADABLE) as error:
            code = error.refusal.status if isinstance(error, request.KubeReadError) else 0
            words = f"{target.kind}/{policy.metadata.namespace}/{target.name}"
            if code == 404:
                return TargetState(problem=f"TargetNotFound: there is no {words} with a scale subresource")
            if code == 403:
                remedy = "add its resource to autoscaler.targets of the chart"
                return TargetState(problem=f"TargetForbidden: {words} may not be read: {remedy}")
            last = self._states.get(name)
            if last and last.replicas and self._clock() - last.replicas.observed_at_s < UNREAD_AFTER_S:
                return last
            return TargetState(problem=f"TargetUnread: {words}: {error}")

    async def _read(self, policy: scaling_policy.ScalingPolicy, known: _Known) -> TargetState:
        namespace, target, at_s = policy.metadata.namespace, policy.spec.target, self._clock()
        if (target.api_version, target.kind) == (SERVICE.api_version, SERVICE.name):
            own = await self._pods(namespace, f"{labels.SERVICE_LABEL}={target.name}")
            pods = [pod for pod in own if pod.metadata.labels.phase != CACHE]  # those answer no requests
            wanted = sum(pod.counts for pod in pods)
            seen = known.starts.see(wanted, pods, at_s)
            types = Counter(
                pod.metadata.labels.instance_type for pod in pods if pod.counts and pod.ready_at_s is not None
            )
            return TargetState(seen, "", tuple(known.starts.took_s), known.starts.changed_at_s, ready=types)
        resource = await self._kinds.of_kind(target)
        if resource is None:
            raise ObservationError(f"the API server has no {target.kind} in {target.api_version}")
        body = await self._connection.read(f"{resource.path(namespace, target.name)}/scale")
        scale = msgspec.json.decode(body, type=_Scale)
        if scale.spec.replicas > scaling_policy.MOST_REPLICAS:
            words = f"{target.kind}/{namespace}/{target.name} asks for {scale.spec.replicas} replicas"
            return TargetState(
                problem=f"TargetTooLarge: {words}; a policy scales {scaling_policy.MOST_REPLICAS} at most"
            )
        if not scale.status.selector:
            ready = min(scale.spec.replicas, scale.status.replicas)
            awaited = (at_s,) * min(scale.spec.replicas - ready, MOST_ORDERED)
            return TargetState(Replicas(scale.spec.replicas, ready, awaited, at_s), resource.plural)
        there = [pod for pod in known.pods if pod.counts]
        is_settled = len(there) == scale.spec.replicas and all(pod.ready_at_s is not None for pod in there)
        if not is_settled or at_s - known.pods_at_s >= PODS_EVERY_S:
            known.pods, known.pods_at_s = await self._pods(namespace, scale.status.selector), at_s
        replicas = known.starts.see(scale.spec.replicas, known.pods, at_s)
        names = tuple(f"{namespace}/{pod.metadata.name}" for pod in known.pods if pod.counts)
        return TargetState(replicas, resource.plural, tuple(known.starts.took_s), known.starts.changed_at_s, names)

    async def _pods(self, namespace: str, selector: str) -> tuple[TargetPod, ...]:
        # From the API server's cache (resourceVersion 0): a second's delay costs nothing here.
        query = {"labelSelector": selector, "resourceVersion": "0"}
        body = await self._connection.read(f"/api/v1/namespaces/{namespace}/pods", query)
        return tuple(msgspec.json.decode(body, type=structs.ListPage[TargetPod]).items or ())
