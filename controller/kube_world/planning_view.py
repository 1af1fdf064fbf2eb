"""The cluster as the loop plans on it: what the watches saw, what was written since, and since when things stand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cluster.snapshot import Snapshot
from cluster.workloads import IdleClaim, LeftOut
from controller.deciders.gang_rollback import half_started
from controller.kube.cluster_view import ClusterView
from controller.kube_world.assumed import Assumed
from controller.kube_world.in_flight import with_deployed, with_what_is_under_way
from controller.kube_world.instances import Instances
from controller.kube_world.last_scaled import scaled_at_s
from controller.kube_world.since_when import SinceWhen
from controller.placers.pool_affinity import PlacementModes
from controller.placers.pools import Pool, requested_mode


class PlanningView:
    """What both the operator and `tonnage plan` make of a cluster's objects before they decide."""

    def __init__(
        self,
        sightings: ClusterView,
        pools: Sequence[Pool],
        *,
        clock: Callable[[], float],
        device_classes: Mapping[str, str] | None = None,
    ) -> None:
        """clock: monotonic, seconds, of `assumed`.

        device_classes: by the resource as which devices are counted, the DeviceClass that instances ask for in pools of
        `dra`.
        """
        self._sightings = sightings
        self._clock = clock
        self._modes = PlacementModes(pools)
        self.instances = Instances(sightings, self._modes, device_classes or {})
        self.assumed = Assumed()
        """Binds that were issued and that the watch has not shown yet."""
        self.scaled: dict[str, float] = {}
        """When this process last scaled a service, seconds since the epoch. Its status says so, too, but that may be
        seen only after the next cycle has begun, which would then change again what has just been changed."""
        self._half_started = SinceWhen(sightings.half_started_since_s, may_lag=True)
        self._written: Mapping[str, float | None] = {}
        self._idle = SinceWhen(lambda claim: self._written.get(claim))
        self._released = SinceWhen(lambda name: pod.placed_at_s if (pod := sightings.pod(name)) else None)

    def snapshot(self) -> Snapshot:
        """The cluster now. Raises ObservationError."""
        seen = self._sightings.snapshot()
        issued = self.assumed.standing(self._sightings.pod, self._clock())
        there = with_what_is_under_way(seen, self._sightings.pod, issued, lambda pod: requested_mode(pod) is not None)
        deployments = tuple(self._sightings.deployments())
        modes = self.instances.observe(seen, deployments)
        deployed = with_deployed(
            there,
            deployments,
            lambda service, gpu_type: self.instances.content(seen, service, gpu_type),
            self._scaled_at_s,
        )
        return self._with_facts(self._modes.restricted(deployed, modes, self._asked), seen)

    def _with_facts(self, snapshot: Snapshot, seen: Snapshot) -> Snapshot:
        """The snapshot that also says since when things stand, and what is not in it and why."""
        released = [
            name
            for row in seen.pods.pending
            if (pod := self._sightings.pod(name := seen.pods.names[int(row)])) and pod.chosen_node
        ]
        return replace(
            snapshot,
            half_started_since_s=self._half_started.of(half_started(snapshot), snapshot.at_s),
            released_at_s=self._released.of(released, snapshot.at_s),
            idle_claims=self._idle_claims(snapshot.at_s),
            left_out=tuple(self._left_out()),
        )

    def _idle_claims(self, at_s: float) -> tuple[IdleClaim, ...]:
        """Claims none of whose pods has a node or is on its way to one: kube-scheduler may bind that at any moment."""
        claims = {
            f"{claim.name} {claim.uid}": claim  # another claim of the same name is another claim
            for claim in self._sightings.half_made_claims()
            if not any(pod.node or pod.chosen_node for pod in map(self._sightings.pod, claim.pods) if pod)
        }
        self._written = {key: claim.placed_at_s for key, claim in claims.items()}
        since_s = self._idle.of(claims, at_s)
        return tuple(IdleClaim(each.name, each.pods, since_s[key], each.holder) for key, each in claims.items())

    def _left_out(self) -> list[LeftOut]:
        reasons = self._sightings.unallocated().items()
        return [LeftOut(pod, why.code, why.words) for pod, why in sorted(reasons) if self._asked(pod) is not None]

    def _asked(self, name: str) -> str | None:
        pod = self._sightings.pod(name)
        return requested_mode(pod) if pod else None

    def _scaled_at_s(self, service: str) -> float | None:
        seen = self._sightings.service(service)
        said = scaled_at_s(seen.status) if seen else None
        own = self.scaled.get(service)
        return own if said is None or (own is not None and own > said) else said
