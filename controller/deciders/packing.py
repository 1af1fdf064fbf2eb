"""Packing: a node for every pending pod of one share of the cluster, pod by pod or all at once."""

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.batch import pack_batch
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from placement.engine.node_order import content_rank
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.packing.planner import pack
from placement.policies import policy_named


def decide(share: Snapshot, turn: Turn) -> Plan:
    """Binds, by priority, and the evictions that make room for them; a pod without a place waits, with the reason."""
    decisions = turn.decisions
    if decisions.planner == "packing":
        return pack(share, packer_for(share, decisions), turn.budget, preempt=decisions.preempt)
    return pack_batch(
        share,
        decisions.batch,
        lambda seen: packer_for(seen, decisions),
        turn.memory,
        turn.budget,
        preempt=decisions.preempt,
    )


def packer_for(snapshot: Snapshot, decisions: Decisions) -> Packer:
    """The packing engine for a snapshot; the policy expects future pods to resemble those present and pending."""
    pods = snapshot.pods
    expected = tuple(pods.shapes[index] for index in pods.shape)
    policy = policy_named(decisions.policy, Knowledge(fleet=snapshot, expected=expected, seed=decisions.seed))
    return Packer.of(snapshot, policy, rank=content_rank(snapshot))
