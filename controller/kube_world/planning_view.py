"""Snapshot for planning: the observed cluster, own writes since, and the start times of states with deadlines."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from cluster.actions import Bind, Evict, HoldSeats, Move, Start
from cluster.changes import resized, without_pods
from cluster.clock import Clock
from cluster.held_seats import with_room_kept, with_unseen
from cluster.nodes import HeldBack
from cluster.plans import PlanLimits
from cluster.snapshot import Snapshot
from cluster.workloads import CACHE, IdleClaim, InstanceType, LeftOut
from controller.deciders.closing import half_started, not_bound, overdue, since
from controller.kube.cluster_view import SeenDeployment, SeenPod, SeenRefusal
from controller.kube.sender import REQUEST_TIMEOUT_S
from controller.kube_world.cached_view import CachedView
from controller.kube_world.deployments import Instances
from controller.kube_world.refusals import Refusals, said, unplaced_shape
from controller.kube_world.reservations import AssumedWrites, Reservations
from controller.kube_world.stops import StopMemory
from controller.placers import ModesOfServices, NodePool, PlacementModes, requested_mode
from controller.snapshot.namespace_bounds import NamespaceBounds, managed_only, within_quotas
from controller.snapshot.quotas import CountedDevices, milli_quotas, with_shares
from controller.snapshot.teams import with_team_limits

EVERYWHERE = re.compile(r"nodes are available: (?!\d)")
"""kube-scheduler's words for a pod that no node can take, whatever is on it, such as one whose volume claim does not
exist; of each other reason it says first for how many nodes it holds."""
FORGET_S = 120.0
"""A process that has not looked for longer was not the leader meanwhile, and knows nothing any more. Chosen: four times
the longest pause between two cycles."""
LOADING_S = 600.0
"""Longest time for which instances that are to stop serve until those that start are ready. Chosen: as long as the
autoscaler waits for replicas."""
STEP_S = 5.0
"""A clock of dates that ran so much faster or slower than the monotonic one was set, and not slewed."""


class StateStartTimes:
    """Start times of one kind of state with a deadline, stored on the objects, so that a restart or another leader
    loses nothing. Until an instant is stored, it is when this process saw the state."""

    def __init__(self, *, may_lag: bool = False) -> None:
        """may_lag: whether a stored instant may belong to an earlier period of the state and not be removed yet."""
        self._may_lag = may_lag
        self._known: Mapping[str, float] = {}
        self._outdated: Mapping[str, float | None] = {}
        """Instants that were stored before the clock of dates was set."""
        self._looked_at_s: float | None = None
        self._looked_s = 0.0

    def of(self, written: Mapping[str, float | None], at_s: float, now_s: float) -> Mapping[str, float]:
        """Start time of each object that is in the state now.

        written: instant stored on each of them, seconds since the epoch; None for none. at_s: now, likewise. now_s:
        now, by a monotonic clock: where the clock of dates was set meanwhile, each state is as old as it was.
        """
        if self._looked_at_s is not None:
            step_s = (at_s - self._looked_at_s) - (now_s - self._looked_s)
            if now_s - self._looked_s > FORGET_S:
                self._known, self._looked_at_s = {}, None
            elif abs(step_s) > STEP_S:
                self._known = {name: since_s + step_s for name, since_s in self._known.items()}
                self._outdated = {name: written[name] for name in self._known.keys() & written.keys()}
                self._looked_at_s += step_s
        self._looked_s = now_s
        found = {name: each for name in written if (each := self._since(name, written[name], at_s)) is not None}
        self._known, self._looked_at_s = since(tuple(written), found, at_s) if written else {}, at_s
        return self._known

    def _since(self, name: str, written: float | None, at_s: float) -> float | None:
        known = self._known.get(name)
        if known is not None and written == self._outdated.get(name):
            written = None
        if written is not None and written > at_s:
            written = None  # by a clock that is ahead, or by somebody else: a deadline must pass all the same
        if not self._may_lag or written is None:
            return known if written is None else written
        if known is not None:
            return max(known, written)
        # The object was not in the state at the last call, so an older stored instant is of an earlier period.
        return written if self._looked_at_s is None or written >= self._looked_at_s else None


class PlanningView:
    """Planning snapshots from a cluster's objects, the same for the operator and `tonnage plan`."""

    def __init__(
        self,
        view: CachedView,
        pools: Sequence[NodePool],
        *,
        clock: Clock,
        device_classes: Mapping[str, str] | None = None,
        reservations: Reservations | None = None,
        most_stops_per_seat: int = PlanLimits().max_stops_per_seat,
        release_deadline_s: float = math.inf,
    ) -> None:
        """clock: monotonic, seconds.

        device_classes: DeviceClass that instances request in pools of mode dra, by extended resource name.
        reservations: which released pods hold what they say; all of them where none are given. release_deadline_s:
        after which such a pod gives up its devices, if it cannot be evicted. most_stops_per_seat: as in the settings.
        """
        self.view = view
        self.pools = tuple(pools)
        self.clock = clock
        self._modes = PlacementModes(pools)
        self.instances = Instances(view, self._modes, device_classes or {})
        self.assumed = AssumedWrites()
        self.reservations = reservations or Reservations()
        self.stops = StopMemory(clock, most_stops_per_seat)
        self.refusals = Refusals()
        self._release_deadline_s = release_deadline_s
        self.resized: dict[str, tuple[float, int]] = {}
        """When this process last set the replicas of a policy's target, and to how many, while there is the policy."""
        self._bounds = NamespaceBounds()
        self._half_started, self._waiting = StateStartTimes(may_lag=True), StateStartTimes(may_lag=True)
        self._idle, self._released, self._awaited = StateStartTimes(), StateStartTimes(), StateStartTimes()

    def snapshot(self, *, anew: bool = True) -> Snapshot:
        """Present snapshot for planning; anew as in `CachedView`. Raises ObservationError."""
        seen = self._modes.with_strangers(self.view.snapshot(anew=anew))
        now_s = self.clock()
        if seen.teams and (created_s := seen.pods.started_s) is not None:
            # A clock that was set makes nobody late: a new pod would be so at once, and teams take from each other.
            rows, started_s = seen.pods.pending, created_s.copy()
            waits = self._waiting.of({seen.pods.names[row]: created_s[row] for row in rows.tolist()}, seen.at_s, now_s)
            started_s[rows] = [waits[seen.pods.names[row]] for row in rows.tolist()]
            seen = replace(seen, pods=replace(seen.pods, started_s=started_s))
        sent = self.assumed.unconfirmed(self.view.pod, now_s)
        stopped = (seen.pods.names.row(each.pod) for each in sent if isinstance(each, Evict | Move))
        if ends := [row for row in stopped if row is not None]:
            seen = replace(seen, pods=seen.pods.marked("ending", ends))
        issued = [each for each in sent if isinstance(each, Start)]
        unseen = [each.held for each in sent if isinstance(each, HoldSeats)]
        names = (seen.pods.names[int(row)] for row in seen.pods.pending)
        found = {name: self.view.pod(name) for name in names}  # once each: a tenant decides how many wait
        waiting = [pod for pod in found.values() if pod]
        requested = {pod.name: requested_mode(pod) for pod in waiting}
        ours = {pod.name for pod in waiting if requested[pod.name] is not None}
        self.reservations.retain(frozenset(pod.uid for pod in waiting))
        held = {pod.name: bind for pod in waiting if (bind := self.reservations.held_by(pod))}
        released = [pod for pod in waiting if pod.name in held]
        released_at_s = self._released.of({pod.name: pod.placed_at_s for pod in released}, seen.at_s, now_s)
        given_up = self._heed_refusals(seen, released, released_at_s)
        for each in given_up:
            del held[each.pod]
        present = with_issued_binds(seen, found, issued, ours, held)
        if seen.held or unseen:
            by_holder = ((each, self.view.pod(each.holder)) for each in seen.held)
            believed = (
                each
                for each, pod in by_holder
                # What an answer holds is on no pod, and without takers its room is kept already.
                if (all(seat.taker for seat in each.seats) if pod is None else self.reservations.holds(pod.uid))
                and (pod is not None or each.holder.startswith("Workload/"))
            )
            present = with_room_kept(replace(present, held=with_unseen(believed, unseen)))
        deployed, modes = present, dict[str, Mapping[str, str]]()
        if seen.services:
            deployments = tuple(self.view.deployments())
            modes = self.instances.observe(seen, deployments)
            deployed = self._deployed(present, seen, deployments, now_s)
        for gone in self.resized.keys() - {scaler.name for scaler in seen.scalers}:
            del self.resized[gone]
        quotas = self.view.quotas()
        shared = with_shares(deployed, quotas, self._counted_devices(deployed, modes)) if quotas else deployed
        shared = with_team_limits(shared) if shared.teams else shared
        if (managed := self.view.managed()) is not None:
            shared = managed_only(shared, managed)
        bounded = self._bounds.applied(with_resized(shared, self.resized) if self.resized else shared)
        told = bounded if self.refusals.is_empty else self.refusals.applied(bounded)
        shares = frozenset(pod.name for pod in waiting if pod.has_share)
        restricted = self._modes.restricted(told, modes, requested, shares)
        underway = [pod for pod in released if pod.name in held and not pod.nominated_node]
        # Claims whose pods all have neither a node nor a chosen one, where kube-scheduler may bind at any moment.
        claims = {
            f"{claim.name} {claim.uid}": claim  # a claim recreated under the same name is a different one
            for claim in self.view.half_made_claims()
            if not any(pod.node or pod.chosen_node for pod in map(self.view.pod, claim.pods) if pod)
        }
        since_s = self._idle.of({key: claim.placed_at_s for key, claim in claims.items()}, seen.at_s, now_s)
        partial = half_started(restricted) if restricted.gangs else ()
        partial_since_s = {gang: self.view.half_started_since_s(gang) for gang in partial}
        # Pods whose ResourceClaims cannot be allocated yet.
        without = tuple(
            LeftOut(name, why.code, why.words)
            for name, why in sorted(self.view.unallocated().items())
            if (pod := self.view.pod(name)) and requested_mode(pod)
        )
        planned = replace(
            restricted,
            half_started_since_s=self._half_started.of(partial_since_s, seen.at_s, now_s),
            released_at_s={pod.name: released_at_s[pod.name] for pod in underway},
            scheduler_says={pod.name: _words_for(pod) for pod in underway if pod.scheduler_says},
            recreated=tuple(pod.name for pod in underway if pod.is_recreated),
            idle_claims=tuple(
                IdleClaim(each.name, each.pods, since_s[key], each.holder) for key, each in claims.items()
            ),
            left_out=(*restricted.left_out, *given_up, *without),
        )
        allowed = within_quotas(planned, tuple(milli_quotas(planned, quotas))) if quotas else planned
        allowed = allowed if self.stops.is_empty else self.stops.applied(allowed)
        return allowed if self.refusals.is_empty else with_held_back(allowed, self.refusals.held_back(seen.at_s))

    def _heed_refusals(
        self, seen: Snapshot, released: Iterable[SeenPod], released_at_s: Mapping[str, float]
    ) -> list[LeftOut]:
        """Remembers what kubelets and kube-scheduler refused; returns the released pods that hold nothing any more.

        A pod for which kube-scheduler makes room has its place. One that nobody creates anew would be lost by an
        eviction, and one that kube-scheduler refuses on every node would gain nothing: both stay, give up their devices
        and start when kube-scheduler finds room. Where kube-scheduler does not see what a pod holds (a share, a claim
        that Tonnage allocated), it would be given twice, so that such a pod keeps it.
        """
        refusals, given_up, pods = list(self.view.refused_by_kubelets()), list[LeftOut](), seen.pods
        late = {pod.name: pod for pod in released if not pod.nominated_node}
        rows = {name: row for row in pods.pending.tolist() if (name := pods.names[row]) in late} if late else {}
        at_s = {name: released_at_s[name] for name in late}
        says = {pod.name: _words_for(pod) for pod in late.values() if pod.scheduler_says}
        for name in overdue(at_s, says, at_s=seen.at_s, deadline_s=self._release_deadline_s) if late else ():
            pod, row, keeps = late[name], rows[name], late[name].has_share or late[name].has_claims
            is_refused_everywhere = not keeps and EVERYWHERE.search(pod.scheduler_says)
            if pod.scheduler_says and not is_refused_everywhere:
                shape = unplaced_shape(pods.shapes[int(pods.shape[row])])
                namespace, node = name.partition("/")[0], pod.chosen_node
                refusals.append(SeenRefusal(pod.uid, namespace, shape, node, says[name], at_s[name], stands=True))
            if keeps or ((pod.is_recreated or pods.movable[row]) and not is_refused_everywhere):
                continue
            words = not_bound(pod.chosen_node, says.get(name, ""), self._release_deadline_s)
            remedy = "it holds no devices any more and starts there once kube-scheduler finds room"
            given_up.append(LeftOut(name, "NotBound", f"{words}; {remedy}; delete it for another node"))
        if refusals or not self.refusals.is_empty:
            self.refusals.take(refusals, seen.at_s)
        return given_up

    def _counted_devices(self, snapshot: Snapshot, modes: ModesOfServices) -> CountedDevices:
        known = {name: found for name in snapshot.gpu_type_names if (found := self.view.gpu_type(name))}
        of_claims = ((s, gpu_type) for s, own in modes.items() for gpu_type, mode in own.items() if mode == "dra")
        return CountedDevices({name: each.resource for name, each in known.items()}, frozenset(of_claims))

    def _deployed(
        self, present: Snapshot, seen: Snapshot, deployments: Iterable[SeenDeployment], now_s: float
    ) -> Snapshot:
        """The present snapshot with each service's replicas read from its Deployments.

        A Deployment that is missing, or whose content differs from its service's present specification, counts as 0
        replicas, so that the plan writes it again, to 0 where the mix does not want it; except where no profile has its
        width any more: then the plan scales it to 0. A service that is only planned has no Deployments: it keeps the
        mix that was planned last.
        """
        found: dict[str, dict[InstanceType, int]] = {}
        outdated: dict[str, list[InstanceType]] = {}
        no_pods = {each.service: each.no_pods for each in deployments if each.no_pods}
        profiled = {(s.name, kind) for s in present.services for kind, _ in present.profiles_of(s)}
        caches = (s.name for s in present.services if s.phase == CACHE and s.cache is not None)
        profiled |= {(name, InstanceType(each, 0)) for name in caches for each in present.gpu_type_names}
        for each in deployments:
            width = each.service, replace(each.instance_type, spot=False)
            if width not in profiled or each.content == self.instances.content(seen, each.service, each.instance_type):
                found.setdefault(each.service, {})[each.instance_type] = each.replicas
            elif each.replicas:
                outdated.setdefault(each.service, []).append(each.instance_type)
        whole = {service.name: service.part_of or service.name for service in present.services}
        loading: dict[str, list[str]] = {}
        """Deployments that are awaited, by the service of their pools: with other replicas one is awaited anew."""
        for each in deployments:
            if each.unready and not each.no_pods and each.service in whole:
                what = f"{each.service} {each.instance_type} {each.replicas}"
                loading.setdefault(whole[each.service], []).append(what)
        unready = {(each.service, each.instance_type): each.unready for each in deployments}
        since_s = self._awaited.of(dict.fromkeys(what for own in loading.values() for what in own), seen.at_s, now_s)
        services = []
        for service in present.services:
            deployed = dict(sorted(found[service.name].items())) if service.name in found else None
            replicas = service.replicas if service.is_planned_only else deployed
            began_s = max((since_s[what] for what in loading.get(whole[service.name], ())), default=-math.inf)
            is_loading = None if service.is_planned_only else seen.at_s - began_s < LOADING_S
            no_pod = no_pods.get(service.name, "")
            old = tuple(sorted(outdated.get(service.name, ())))
            idle = {kind: unready.get((service.name, kind), 0) for kind in replicas or ()}
            service = replace(service, replicas=replicas, no_pods=no_pod, is_loading=is_loading, outdated=old)
            services.append(replace(service, unready=idle))
        return replace(present, services=tuple(services))


def _words_for(pod: SeenPod) -> str:
    return said("kube-scheduler", pod.scheduler_says)


def with_issued_binds(
    snapshot: Snapshot,
    seen: Mapping[str, SeenPod | None],
    issued: Iterable[Start],
    ours: Collection[str],
    held: Mapping[str, Start],
) -> Snapshot:
    """The snapshot with sent binds counted as done, and without pending pods of other schedulers.

    A pod whose gate was removed counts as running on its chosen node until kube-scheduler decides otherwise; this is
    read from the pod, so it survives a restart of this process.
    seen: present state of the pending pods. ours: those that wait for Tonnage. held: devices of released pods, as far
    as they are believed.
    """
    binds = {bind.pod: bind for bind in issued}
    foreign = []
    for row in snapshot.pods.pending:
        name = snapshot.pods.names[int(row)]
        pod = seen.get(name)
        if name in binds:
            continue
        if pod and pod.node:
            binds[name] = Bind(name, pod.node, pod.devices)  # bound since the snapshot was taken
        elif name in held:
            binds[name] = held[name]  # about to be: its devices are in use
        elif name not in ours:
            foreign.append(int(row))
    kept = replace(snapshot, pods=without_pods(snapshot.pods, foreign)) if foreign else snapshot
    pods, nodes = kept.pods.names, kept.nodes.names
    return kept.after(b for b in binds.values() if pods.row(b.pod) is not None and nodes.row(b.node) is not None)


def with_resized(snapshot: Snapshot, resized_to: Mapping[str, tuple[float, int]]) -> Snapshot:
    """The snapshot with replicas that were set since they were last read.

    resized_to: instant of the snapshot that the write was made from, and the replicas written, by policy.
    """
    for scaler in snapshot.scalers:
        at_s, replicas = resized_to.get(scaler.name, (-math.inf, 0))
        if scaler.replicas is not None and scaler.replicas.observed_at_s <= at_s + REQUEST_TIMEOUT_S:
            snapshot = resized(snapshot, scaler.name, replicas, at_s)
    return snapshot


def with_held_back(snapshot: Snapshot, held: tuple[HeldBack, ...]) -> Snapshot:
    """The snapshot in which these nodes take no new pods."""
    if not held:
        return snapshot
    nodes = snapshot.nodes
    schedulable = nodes.schedulable.copy()
    there = []
    for each in held:
        if (row := nodes.names.row(each.node)) is not None:
            schedulable[row] = False
            there.append(each)
    schedulable.flags.writeable = False
    cordoned = None if nodes.cordoned is None else nodes.cordoned & ~(nodes.schedulable & ~schedulable)
    nodes = replace(nodes, schedulable=schedulable, cordoned=cordoned)
    return replace(snapshot, nodes=nodes, held_back=tuple(there))
