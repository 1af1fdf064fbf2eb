"""Live packer: a packing policy that is kept from plan to plan and learns from what happens between them.

The operator, the simulator and the benchmarks keep one for each share of the cluster. It learns of pods by the
difference of successive snapshots; the ledger is built from each snapshot and cannot drift. Prices are made beside the
plans, never where nothing waits, and always used from the next plan on: when they are ready decides nothing.
"""

from collections.abc import Callable

from cluster.nodes import LabelMatches
from cluster.snapshot import Snapshot
from placement.engine.ledger import Ledger
from placement.engine.node_order import content_rank
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge, Policy, SlowWork
from placement.engine.population import (
    Population,
    changes_between,
    has_other_nodes,
    is_other_fleet,
    population_of,
)


class LivePacker:
    """A policy between plans: `observe` each snapshot, take a `packer` where a pod waits, then do the `slow_work`."""

    def __init__(self, policy_of: Callable[[Knowledge], Policy], seed: int = 0) -> None:
        """policy_of: makes the policy at a cold start. seed: of the policy's random draws."""
        self._policy_of = policy_of
        self._seed = seed
        self.policy: Policy | None = None
        """None before the first snapshot."""
        self._seen: Population | None = None
        self._planned: Ledger | None = None
        self._matches: LabelMatches | None = None

    def observe(self, snapshot: Snapshot) -> Policy:
        """Tells the policy what changed since the snapshot before.

        The first snapshot is a cold start, at which the present pods are the first evidence. So is one of another
        fleet.
        """
        seen, now = self._seen, population_of(snapshot)
        self._seen = now
        if self.policy is None or seen is None or is_other_fleet(seen, now):
            present = tuple(snapshot.pods.shapes[index] for index in snapshot.pods.shape.tolist())
            self.policy = self._policy_of(Knowledge(snapshot, present=present, seed=self._seed))
            return self.policy
        changes = changes_between(seen, now)
        self.policy.departed(*changes.departed)
        self.policy.arrived(*changes.arrived)
        if has_other_nodes(seen, now):
            self.policy.fleet_changed(snapshot)
        return self.policy

    def packer(self, snapshot: Snapshot) -> Packer:
        """Engine for a draft that starts from this snapshot: the observed one, or it after a part of the plan.

        A policy that has evidence and no prices at all makes them here, in this call.
        """
        policy = self.policy or self.observe(snapshot)
        packer = Packer.of(snapshot, policy, rank=content_rank(snapshot), matches=self._matches)
        self._matches = packer.filter.matches
        if policy.is_cold:
            policy.upkeep(packer.ledger)
        self._planned = packer.ledger
        return packer

    def slow_work(self) -> SlowWork | None:
        """Work to be done before the next plan, if a packer was taken since the last call, and it is due."""
        planned, self._planned = self._planned, None
        return None if planned is None or self.policy is None else self.policy.slow_work(planned)
