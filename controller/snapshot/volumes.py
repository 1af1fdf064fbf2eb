"""Where the volumes of a pod let it run, as kube-scheduler's filters have it, and what it attaches to its node.

The filters are VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits. A claim that Kubernetes has not
looked at yet, as in files that are to be applied, is read as it will be bound. CSIStorageCapacity is not counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import IntArray
from cluster.nodes import NODE_NAME_FIELD, LabelMatches, Labels
from cluster.plans import Reason
from cluster.workloads import OWN_VOLUME, Requirement, Terms
from controller.api import storage
from controller.api.structs import Volume
from controller.objects.documents import dotted
from controller.objects.read import put
from controller.snapshot.nodes import MOST_ALTERNATIVES, NOWHERE, either, joined
from controller.snapshot.waiting_claims import ClassOfVolumes, Want, nodes_of, want_of

_STABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of zones and regions by their older names. Source: kube-scheduler, VolumeZone."""
ZONE_LABELS = (*_STABLE, *_STABLE.values())
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
}
"""CSI driver that serves the volumes of a driver in Kubernetes itself, by provisioner. Source: csi-translation-lib."""
_INLINE = {
    "gce_persistent_disk": "gcePersistentDisk",
    "aws_elastic_block_store": "awsElasticBlockStore",
    "azure_disk": "azureDisk",
    "cinder": "cinder",
    "rbd": "rbd",
    "iscsi": "iscsi",
}
"""Volumes in a pod itself that kube-scheduler compares with those of other pods; no cluster of today needs them."""

NO_LIMIT = np.iinfo(np.int64).max
"""Volumes on a node whose driver has no limit there."""


@dataclass(frozen=True, slots=True)
class VolumeNeeds:
    """What the volumes of a pod ask of its node and of other pods."""

    terms: Terms = ()
    """Alternatives of which its node must meet one; none: any node. Of a running pod they were met."""
    claims: tuple[str, ...] = ()
    """What one pod at a time may use: claims (`namespace/name`), and a volume that several claims wait for."""
    volumes: tuple[tuple[str, str], ...] = ()
    """As `Beside.volumes`; see `VolumeIndex.limits`."""
    problem: Reason | None = None
    """Why it can start nowhere yet, with the field's path."""


NO_NEEDS = VolumeNeeds()
Why = tuple[str, str]
"""(code, words) of a problem with a claim."""


@dataclass(frozen=True, slots=True)
class _OfClaim:
    """What one claim asks of its pods' nodes."""

    terms: Terms = ()
    zones: tuple[tuple[str, frozenset[str]], ...] = ()
    """Labels of zone and region of its volume, with the values that serve it."""
    claims: tuple[str, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()
    problem: Why | None = None
    waits: bool = False
    """Whether it is bound only after a node has been chosen, which is kube-scheduler's doing."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What was found for a claim, and from what."""

    volume: storage.VolumeObject | None
    epochs: tuple[int, int]
    found: _OfClaim
    alone: VolumeNeeds
    """Needs of a pod without other claims."""


class VolumeIndex:
    """Claims, volumes, storage classes and CSI nodes of a cluster, and what they ask of pods that use them."""

    def __init__(self) -> None:
        self.version = 0
        """Rises with each change, after which `needs` and `limits` may answer anew."""
        self._claims: dict[str, storage.VolumeClaimObject] = {}
        self._wants: dict[str, tuple[ClassOfVolumes, Want]] = {}
        """What each claim without a volume wants, and of which class."""
        self._volumes: dict[str, storage.VolumeObject] = {}
        self._nodes: dict[str, Terms | None] = {}
        """Nodes on which a volume can be used; None: not understood."""
        self._objects: dict[str, storage.StorageClass] = {}
        self._csi_nodes: dict[str, storage.CsiNode] = {}
        self._classes: dict[str, ClassOfVolumes] = {}
        self._kept: defaultdict[str, set[str]] = defaultdict(set)
        """Volumes that name a claim, by it."""
        self._default_class = ""
        """Class of the claims in files that name none."""
        self._epoch = 0
        """Rises when the CSI nodes change."""
        self._limited: tuple[int, frozenset[str]] = (0, frozenset())
        """Drivers that have a limit on some node, as of this epoch."""
        self._known: dict[str, _Known] = {}

    def put_claim(self, name: str, claim: storage.VolumeClaimObject | None) -> None:
        """name: `namespace/name`."""
        self.version += 1
        put(self._claims, name, claim)
        self._known.pop(name, None)
        if (waited := self._wants.pop(name, None)) is not None:
            of, want = waited
            of.remove_claim(name, want)
        if claim is not None and not claim.spec.volume_name and claim.metadata.deletion_timestamp is None:
            of, want = self._wants[name] = self._class(self._class_of(claim)), want_of(claim)
            of.put_claim(name, want)

    def put_volume(self, name: str, volume: storage.VolumeObject | None) -> None:
        self.version += 1
        before = self._volumes.pop(name, None)
        if before is not None:
            del self._nodes[name]
            of, claim = self._class(before.storage_class), before.kept_for
            of.remove_volume(name)
            if claim:
                self._kept[claim].discard(name)
                if not self._kept[claim]:
                    del self._kept[claim]
                of.change()
        if volume is not None:
            self._volumes[name] = volume
            nodes = self._nodes[name] = nodes_of(volume)
            of, claim = self._class(volume.storage_class), volume.kept_for
            if claim:
                self._kept[claim].add(name)
                of.change()
            elif volume.status.phase in ("", "Available"):
                of.put_volume(volume, nodes)

    def put_storage_class(self, name: str, storage_class: storage.StorageClass | None) -> None:
        self.version += 1
        put(self._objects, name, storage_class)
        self._class(name).change()
        marked = [n for n, each in self._objects.items() if each.metadata.annotations.is_default_class == "true"]
        default = min(marked, default="")
        if default != self._default_class:
            self._default_class = default
            for claim in [self._claims[each] for each in self._wants]:
                if claim.storage_class is None:
                    self.put_claim(claim.name, claim)

    def put_csi_node(self, name: str, node: storage.CsiNode | None) -> None:
        self.version += 1
        self._epoch += 1
        put(self._csi_nodes, name, node)

    @property
    def limits_state(self) -> object:
        """Differs once `limits` may answer anew."""
        waiting = ((name, self._classes[name].epoch) for name in self._static_classes())
        return self._epoch, tuple(waiting)

    def limits(self, names: Sequence[str], labels: tuple[Labels, ...]) -> dict[str, IntArray]:
        """Most volumes of each driver on the nodes of these names and labels, as `NodeTable.volume_limits`.

        The volumes of a class that provisions none stand for a driver, too: each node has as many as are available.
        """
        limited = sorted(self._drivers())
        found = {driver: np.full(len(names), NO_LIMIT, dtype=np.int64) for driver in limited}
        for row, name in enumerate(names):
            node = self._csi_nodes.get(name)
            for driver in node.spec.drivers if node is not None else ():
                if driver.allocatable.count is not None:
                    found[driver.name][row] = driver.allocatable.count
        matches = LabelMatches(labels)
        for name in self._static_classes():
            found |= self._classes[name].limits(labels, matches)
        return found

    def _static_classes(self) -> list[str]:
        """Classes with claims that only wait for an available volume."""
        there = (name for name, of in self._classes.items() if of.is_waited_for and (name in self._objects or not name))
        return sorted(name for name in there if not self._provisions(name))

    def needs(
        self, namespace: str, pod: str, volumes: Sequence[Volume], *, uid: str = "", binds: bool = False
    ) -> VolumeNeeds:
        """What the volumes of a pod ask of its node.

        uid: of the pod; empty: not known. binds: whether Tonnage binds the pod itself, so that kube-scheduler does not
        bind its claims.
        """
        found: list[_OfClaim] = []
        problem: Reason | None = None
        alone = NO_NEEDS
        for number, volume in enumerate(volumes):
            known, path = self._of_volume(namespace, pod, uid, volume)
            if known is None:
                continue
            why = known.found.problem
            if why is None and known.found.waits and binds:
                words = "its claim is bound by kube-scheduler with the pod, which Tonnage binds itself: use mode gate"
                why = ("ClaimNotBound", words)
            if why is not None and problem is None:
                problem = Reason(why[0], f"{dotted(('spec', 'volumes', number, *path))}: {why[1]}")
            found.append(known.found)
            alone = known.alone
        together = alone if len(found) < 2 else _needs_of(found)
        return together if problem is None else replace(together, problem=problem)

    def _of_volume(self, namespace: str, pod: str, uid: str, volume: Volume) -> tuple[_Known | None, tuple[str, ...]]:
        """What a volume of a pod asks, None: nothing; and the path of its field in the volume."""
        for attribute, written in _INLINE.items():
            if getattr(volume, attribute) is not None:
                return _unknown("NotUnderstood", "is not understood: use a PersistentVolumeClaim"), (written,)
        if volume.persistent_volume_claim is not None:
            name = f"{namespace}/{volume.persistent_volume_claim.claim_name}"
            return self._of_claim(name), ("persistentVolumeClaim", "claimName")
        if volume.ephemeral is None:
            return None, ()
        name = f"{namespace}/{pod}-{volume.name}"
        claim = self._claims.get(name)
        if claim is not None and not any(
            owner.controller and owner.kind == "Pod" and owner.name == pod and (not uid or owner.uid in ("", uid))
            for owner in claim.metadata.owner_references
        ):
            return _unknown("ClaimNotOwned", f"PersistentVolumeClaim {name} is not the pod's own"), ("ephemeral",)
        return self._of_claim(name), ("ephemeral",)

    def _of_claim(self, name: str) -> _Known:
        claim = self._claims.get(name)
        if claim is None:
            return _unknown("ClaimMissing", f"there is no PersistentVolumeClaim {name}")
        volume = self._volumes.get(claim.spec.volume_name)
        want = self._wants.get(name)
        epochs = (self._epoch, -1 if want is None else want[0].epoch)
        known = self._known.get(name)
        if known is None or known.volume is not volume or known.epochs != epochs:
            found = self._found(claim, volume, want)
            known = self._known[name] = _Known(volume, epochs, found, _needs_of([found]))
        return known

    def _found(
        self,
        claim: storage.VolumeClaimObject,
        volume: storage.VolumeObject | None,
        waited: tuple[ClassOfVolumes, Want] | None,
    ) -> _OfClaim:
        spec, phase, name = claim.spec, claim.status.phase, claim.name
        of = _OfClaim(
            claims=(name,) if storage.POD_ONLY in spec.access_modes else (), volumes=self._attached(claim, volume)
        )
        if claim.metadata.deletion_timestamp is not None:
            return _refused("ClaimDeleted", f"PersistentVolumeClaim {name} is being deleted", of)
        if phase == "Lost":
            return _refused("ClaimLost", f"PersistentVolumeClaim {name} has lost its volume", of)
        if waited is not None:
            return self._unbound(claim, *waited, of)
        if claim.metadata.annotations.bind_completed is None and phase not in ("", "Bound"):
            words = f"PersistentVolumeClaim {name} is not bound to PersistentVolume {spec.volume_name} yet"
            return _refused("ClaimNotBound", words, of)
        if volume is None:
            words = f"PersistentVolumeClaim {name} has PersistentVolume {spec.volume_name}, which does not exist"
            return _refused("VolumeMissing", words, of)
        terms = self._nodes[spec.volume_name]
        if terms is None:
            words = f"spec.nodeAffinity of PersistentVolume {spec.volume_name} is not understood"
            return _refused("NotUnderstood", words, of)
        return replace(of, terms=terms, zones=tuple(_zones_of(volume)))

    def _unbound(self, claim: storage.VolumeClaimObject, there: ClassOfVolumes, want: Want, of: _OfClaim) -> _OfClaim:
        """Nodes where an available volume could serve the claim, or one could be made for it."""
        name, class_name = claim.name, self._class_of(claim)
        storage_class = self._objects.get(class_name)
        if class_name and storage_class is None:
            words = f"there is no StorageClass {class_name}, which PersistentVolumeClaim {name} names"
            return _refused("StorageClassMissing", words, of)
        waits = storage_class is not None and storage_class.volume_binding_mode == storage.WAITS
        if not waits and claim.status.phase:
            why = f"StorageClass {class_name} binds at once" if class_name else "it has no StorageClass"
            return _refused("ClaimNotBound", f"PersistentVolumeClaim {name} is not bound yet, and {why}", of)
        provisions, selected = self._provisions(class_name), claim.metadata.annotations.selected_node
        kept = self._kept_for(claim, want)
        terms: Terms | None = kept if kept is not None else there.offers(want).terms
        if selected is not None or (kept is None and not there.offers(want).names):
            terms = None
        if terms is None and not provisions:
            words = f"no available PersistentVolume fits PersistentVolumeClaim {name}, and its class provisions none"
            return _refused("NoVolumeFits", words, of)
        if provisions and storage_class is not None:
            made = _topologies(storage_class)
            terms = made if terms is None else either((terms, made))
        if selected is not None:
            terms = joined(terms or (), ((Requirement(NODE_NAME_FIELD, "In", (selected,)),),)) or NOWHERE
        of = replace(of, terms=terms or (), waits=waits)
        if provisions or kept is not None:
            return of
        volumes, turns = there.counted(name, want)
        return replace(of, claims=(*of.claims, *turns), volumes=(*of.volumes, *volumes))

    def _attached(
        self, claim: storage.VolumeClaimObject, volume: storage.VolumeObject | None
    ) -> tuple[tuple[str, str], ...]:
        """The claim's volume, where its driver has limits. One that is not there yet counts by the claim's name."""
        if volume is not None:
            driver, handle = _csi_of(volume)
            # One that a single node mounts is not shared but by pods there, each of which it then counts for.
            is_own = set(claim.spec.access_modes) <= {"ReadWriteOnce", storage.POD_ONLY}
            found = (driver, OWN_VOLUME if is_own and handle else handle)
        else:
            of = self._objects.get(claim.storage_class or "")
            found = (_MIGRATED.get(of.provisioner, of.provisioner), claim.name) if of is not None else ("", "")
        return (found,) if found[0] in self._drivers() else ()

    def _drivers(self) -> frozenset[str]:
        """Drivers that have a limit on some node."""
        if self._limited[0] != self._epoch:
            drivers = (each for node in self._csi_nodes.values() for each in node.spec.drivers)
            self._limited = self._epoch, frozenset(d.name for d in drivers if d.allocatable.count is not None)
        return self._limited[1]

    def _kept_for(self, claim: storage.VolumeClaimObject, want: Want) -> Terms | None:
        """Nodes on which a volume that names the claim can be used; None where there is none."""
        for name in sorted(self._kept.get(claim.name, ())):
            volume, reference = self._volumes[name], self._volumes[name].spec.claim_ref
            is_its = reference is not None and reference.uid in ("", claim.metadata.uid)
            if is_its and volume.storage_class == self._class_of(claim) and want.may_keep(volume):
                terms = self._nodes[name]
                return NOWHERE if terms is None else terms
        return None

    def _provisions(self, class_name: str) -> bool:
        """Whether volumes of a class are made when a claim asks for one."""
        of = self._objects.get(class_name)
        return of is not None and of.provisioner not in ("", storage.NO_PROVISIONER)

    def _class_of(self, claim: storage.VolumeClaimObject) -> str:
        """Name of a claim's class; one that Kubernetes has not looked at yet will have the default."""
        named = claim.storage_class
        return named if named is not None else "" if claim.status.phase else self._default_class

    def _class(self, name: str) -> ClassOfVolumes:
        if name not in self._classes:
            self._classes[name] = ClassOfVolumes(name)
        return self._classes[name]


def _zones_of(volume: storage.VolumeObject) -> Iterator[tuple[str, frozenset[str]]]:
    for key in ZONE_LABELS:
        values = [value.strip() for value in volume.metadata.labels.get(key, "").split("__")]
        if all(values):  # kube-scheduler ignores a label with an empty one
            yield key, frozenset(values)


def _in_zones(found: Iterable[_OfClaim]) -> Terms:
    """Nodes in the zones and regions of all volumes, or with no label of any."""
    values: dict[str, frozenset[str]] = {}
    for of in found:
        for key, of_volume in of.zones:
            values[key] = values.get(key, of_volume) & of_volume
    if not values:
        return ()
    inside: Terms = ((),)
    for key, allowed in values.items():
        ways: list[tuple[Requirement, ...]] = [(Requirement(key, "In", tuple(sorted(allowed))),)]
        if key in _STABLE:
            # A node that has no label of the older name is looked at by the newer.
            ways.append((Requirement(key, "DoesNotExist"), Requirement(_STABLE[key], "In", tuple(sorted(allowed)))))
        inside = tuple((*term, *way) for term in inside for way in ways)
    return (*inside, tuple(Requirement(key, "DoesNotExist") for key in ZONE_LABELS))


def _topologies(storage_class: storage.StorageClass) -> Terms:
    """Nodes for which a class makes volumes."""
    written = storage_class.allowed_topologies
    terms = (tuple(Requirement(r.key, "In", r.values) for r in term.match_label_expressions) for term in written)
    return tuple(filter(None, terms)) or (NOWHERE if written else ())


def _csi_of(volume: storage.VolumeObject) -> tuple[str, str]:
    """Driver and handle of a volume; empty where it has no driver."""
    spec = volume.spec
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    for kind, disk in (
        ("aws-ebs", spec.aws_elastic_block_store and spec.aws_elastic_block_store.volume_id),
        ("gce-pd", spec.gce_persistent_disk and spec.gce_persistent_disk.pd_name),
        ("azure-disk", spec.azure_disk and spec.azure_disk.disk_uri),
        ("cinder", spec.cinder and spec.cinder.volume_id),
    ):
        if disk:
            return _MIGRATED[f"kubernetes.io/{kind}"], disk
    return "", ""


def _refused(code: str, words: str, of: _OfClaim) -> _OfClaim:
    return replace(of, problem=(code, words))


def _unknown(code: str, words: str) -> _Known:
    """A claim of which nothing else is known."""
    return _Known(None, (0, 0), _refused(code, words, _OfClaim()), NO_NEEDS)


def _needs_of(found: Sequence[_OfClaim]) -> VolumeNeeds:
    """What claims ask together, without their problems."""
    terms: Terms | None = _in_zones(found)
    volumes = [volume for of in {id(of): of for of in found}.values() for volume in of.volumes]
    shared = {each for each in volumes if each[1] != OWN_VOLUME}
    for of in found:
        terms = None if terms is None else joined(terms, of.terms)
    words = f"spec.volumes: their nodes are given by more than {MOST_ALTERNATIVES} requirements and values"
    return VolumeNeeds(
        terms or (),
        tuple(sorted({claim for of in found for claim in of.claims})),
        tuple(sorted((*(each for each in volumes if each[1] == OWN_VOLUME), *shared))),
        Reason("NotUnderstood", words) if terms is None else None,
    )
