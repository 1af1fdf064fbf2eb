"""Snapshot for planning: the observed cluster, own writes since, and the start times of states with deadlines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cluster.nodes import HeldBack
from cluster.snapshot import Snapshot
from cluster.workloads import IdleClaim, LeftOut
from controller.deciders.closing import half_started
from controller.kube.cluster_view import ClusterView, SeenPod
from controller.kube_world.assumed import Assumed
from controller.kube_world.in_flight import with_deployed, with_issued_binds, with_resized
from controller.kube_world.instances import Instances
from controller.kube_world.last_scaled import scaled_at_s
from controller.kube_world.promises import Promises
from controller.kube_world.since_when import StartTimes
from controller.placers.pool_affinity import PlacementModes
from controller.placers.pools import Pool, requested_mode
from controller.snapshot.namespace_bounds import NamespaceBounds, within_quotas

UNHEEDED = (
    "PodAffinityNotHeeded",
    (
        "it requires pod affinity or anti-affinity, which Tonnage does not heed: kube-scheduler might not bind it "
        "where it is sent, and it could go nowhere else; let it be preferred instead of required"
    ),
)
"""Code and words of pods that are not released: their node could not be changed any more."""


class PlanningView:
    """Planning snapshots from a cluster's objects, the same for the operator and `tonnage plan`."""

    def __init__(
        self,
        sightings: ClusterView,
        pools: Sequence[Pool],
        *,
        clock: Callable[[], float],
        device_classes: Mapping[str, str] | None = None,
        promises: Promises | None = None,
    ) -> None:
        """clock: monotonic, seconds, for `assumed`.

        device_classes: DeviceClass that instances request in pools of mode dra, by extended resource name. promises:
        which released pods hold what they say; all of them where none are given.
        """
        self._sightings = sightings
        self._clock = clock
        self._modes = PlacementModes(pools)
        self.instances = Instances(sightings, self._modes, device_classes or {})
        self.assumed = Assumed()
        """Binds that were sent, but not yet shown by the watch."""
        self.promises = promises or Promises()
        self.scaled: dict[str, float] = {}
        """When this process last scaled a service, seconds since the epoch. The service's status has this, too, but may
        arrive after the next cycle has begun, which would then change the service again."""
        self.resized: dict[str, tuple[float, int]] = {}
        """When this process last set the replicas of a policy's target, and to how many, while there is the policy."""
        self._bounds = NamespaceBounds()
        self._half_started = StartTimes(sightings.half_started_since_s, may_lag=True)
        self._written: Mapping[str, float | None] = {}
        self._idle = StartTimes(lambda claim: self._written.get(claim))
        self._released = StartTimes(lambda name: pod.placed_at_s if (pod := sightings.pod(name)) else None)

    def snapshot(self) -> Snapshot:
        """Present snapshot for planning. Raises ObservationError."""
        seen = self._sightings.snapshot()
        issued = self.assumed.unconfirmed(self._sightings.pod, self._clock())
        names = (seen.pods.names[int(row)] for row in seen.pods.pending)
        found = {name: self._sightings.pod(name) for name in names}  # once each: a tenant decides how many wait
        waiting = [pod for pod in found.values() if pod]
        self.promises.keep(frozenset(pod.uid for pod in waiting))
        there = with_issued_binds(
            seen,
            found.get,
            issued,
            lambda pod: requested_mode(pod) is not None and not pod.needs_affinity,
            self.promises.held_by,
        )
        unheeded = [pod for pod in waiting if pod.needs_affinity and requested_mode(pod) is not None]
        deployments = tuple(self._sightings.deployments())
        modes = self.instances.observe(seen, deployments)
        deployed = with_deployed(
            there,
            deployments,
            lambda service, gpu_type: self.instances.content(seen, service, gpu_type),
            self._scaled_at_s,
        )
        for gone in self.resized.keys() - {scaler.name for scaler in seen.scalers}:
            del self.resized[gone]
        scaled = self._bounds.applied(with_resized(deployed, self.resized))
        released = [pod for pod in waiting if self.promises.held_by(pod)]
        requested = {pod.name: requested_mode(pod) for pod in waiting}
        shares = frozenset(pod.name for pod in waiting if pod.has_share)
        restricted = self._modes.restricted(scaled, modes, requested.get, shares.__contains__)
        planned = self._with_facts(restricted, released, unheeded)
        allowed = within_quotas(planned, self._sightings.most_gpu_milli())
        return with_held_back(allowed, self._sightings.held_back(seen.at_s))

    def _with_facts(self, snapshot: Snapshot, released: Sequence[SeenPod], unheeded: Sequence[SeenPod]) -> Snapshot:
        """The snapshot with start times, idle claims, and pods that are left out with the reasons."""
        return replace(
            snapshot,
            half_started_since_s=self._half_started.of(half_started(snapshot), snapshot.at_s),
            released_at_s=self._released.of((pod.name for pod in released), snapshot.at_s),
            recreated=tuple(pod.name for pod in released if pod.is_recreated),
            idle_claims=self._idle_claims(snapshot.at_s),
            left_out=(*snapshot.left_out, *self._left_out(), *(LeftOut(pod.name, *UNHEEDED) for pod in unheeded)),
        )

    def _idle_claims(self, at_s: float) -> tuple[IdleClaim, ...]:
        """Claims whose pods all have neither a node nor a chosen one, where kube-scheduler may bind at any moment."""
        claims = {
            f"{claim.name} {claim.uid}": claim  # a claim recreated under the same name is a different one
            for claim in self._sightings.half_made_claims()
            if not any(pod.node or pod.chosen_node for pod in map(self._sightings.pod, claim.pods) if pod)
        }
        self._written = {key: claim.placed_at_s for key, claim in claims.items()}
        since_s = self._idle.of(claims, at_s)
        return tuple(IdleClaim(each.name, each.pods, since_s[key], each.holder) for key, each in claims.items())

    def _left_out(self) -> list[LeftOut]:
        reasons = self._sightings.unallocated().items()
        return [LeftOut(pod, why.code, why.words) for pod, why in sorted(reasons) if self._mode_of(pod) is not None]

    def _mode_of(self, name: str) -> str | None:
        pod = self._sightings.pod(name)
        return requested_mode(pod) if pod else None

    def _scaled_at_s(self, service: str) -> float | None:
        seen = self._sightings.service(service)
        written = scaled_at_s(seen.status) if seen else None
        own = self.scaled.get(service)
        return own if written is None or (own is not None and own > written) else written


def with_held_back(snapshot: Snapshot, held: tuple[HeldBack, ...]) -> Snapshot:
    """The snapshot in which these nodes take no new pods."""
    if not held:
        return snapshot
    nodes = snapshot.nodes
    rows = [row for each in held if (row := nodes.names.row(each.node)) is not None]
    schedulable = nodes.schedulable.copy()
    schedulable[rows] = False
    schedulable.flags.writeable = False
    there = tuple(each for each in held if nodes.names.row(each.node) is not None)
    return replace(snapshot, nodes=replace(nodes, schedulable=schedulable), held_back=there)
