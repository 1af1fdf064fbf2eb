"""Members of jobs: which pods a training job consists of, on which nodes, as the API server has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.api.foreign_kinds import FOREIGN_GANG
from controller.api.notation import instant
from controller.api.structs import Node, Pod
from controller.deciders.health_facts import incarnation_of


@dataclass(frozen=True, slots=True)
class Member:
    """One running pod of a gang."""

    uid: str
    name: str
    """`namespace/name`."""
    job: str
    """Its gang, `namespace/name`."""
    node: str
    node_uid: str
    created_s: float


@dataclass(frozen=True, slots=True)
class Members:
    """All members of all gangs at one instant."""

    by_uid: Mapping[str, Member] = field(default_factory=dict)
    jobs: Mapping[str, tuple[Member, ...]] = field(default_factory=dict)
    """Members of each gang, by the pods' names."""

    def incarnation(self, job: str) -> str:
        """Name of the job's present run: another one once any pod was replaced."""
        return incarnation_of(member.uid for member in self.jobs.get(job, ()))


def members_from(
    pods: Mapping[str, Pod], nodes: Mapping[str, Node], gang_of: Mapping[str, str] = MappingProxyType({})
) -> Members:
    """Members among these pods: bound, not ended, and not being deleted.

    gang_of: gang of pods of other projects' kinds, by the pods' names, as the operator recognises them.
    """
    by_uid: dict[str, Member] = {}
    jobs: dict[str, list[Member]] = {}
    for name, pod in sorted(pods.items()):
        meta, node = pod.metadata, nodes.get(pod.spec.node_name)
        job = f"{meta.namespace}/{meta.labels.gang}" if meta.labels.gang else gang_of.get(name, "")
        if not job or node is None or meta.deletion_timestamp or pod.holds_nothing:
            continue
        created_s = instant(meta.creation_timestamp) if meta.creation_timestamp else None
        member = Member(meta.uid, name, job, node.metadata.name, node.metadata.uid, created_s or 0.0)
        by_uid[meta.uid] = member
        jobs.setdefault(job, []).append(member)
    return Members(by_uid, {job: tuple(each) for job, each in jobs.items()})


def gangs_of_others(snapshot: Snapshot) -> dict[str, str]:
    """Gang of each bound pod whose gang is of another project's kind, such as a Job or a JobSet, by the pod's name."""
    pods = snapshot.pods
    is_others = np.array([FOREIGN_GANG in gang.name for gang in snapshot.gangs], dtype=np.bool_)
    if not is_others.any():
        return {}
    rows = np.flatnonzero((pods.gang >= 0) & (pods.node != PENDING))
    rows = rows[is_others[pods.gang[rows]]]
    return {pods.names[row]: snapshot.gangs[int(pods.gang[row])].name for row in rows.tolist()}
