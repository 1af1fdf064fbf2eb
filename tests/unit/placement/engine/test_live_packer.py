"""A packing policy that is kept from plan to plan: when it learns, and when prices are made."""

from collections.abc import Sequence
from dataclasses import replace

from cluster.snapshot import Snapshot
from cluster.workloads import Requirement
from placement.engine.live_packer import LivePacker
from placement.engine.policy import Knowledge, Policy
from placement.policies.bid_price import BidPrice
from placement.prices.classes import class_of, kinds_of
from tests.builders.fleet import Node, Pod, node, pod, shape, world
from tests.rigs.packing_rivals import Clustering

NODES = [node(name, gpus=8) for name in "abcd"]
MANY_PODS = 64
"""More than twice the pods that any test starts with, after which prices are due."""
MORE = [node(f"more-{n}", gpus=8) for n in range(3)]


def bid_price(known: Knowledge) -> BidPrice:
    return BidPrice(kinds_of(known.fleet.nodes, known.fleet.gpu_type_names), seed=known.seed, present=known.present)


def seen(pods: Sequence[Pod], nodes: Sequence[Node] = NODES) -> Snapshot:
    return world(nodes, pods)


def running(*names: str) -> list[Pod]:
    return [pod(name, gpus=1, on="a", devices=(0,), gpu_milli=10, cpu_milli=1) for name in names]


def waiting(count: int, gpus: int = 1) -> list[Pod]:
    return [pod(f"w{n}", gpus=gpus) for n in range(count)]


class Cycles:
    """A live packer, and the policy that it keeps."""

    def __init__(self) -> None:
        self.live = LivePacker(bid_price)
        self.made = 0
        """Price books."""

    def cycle(self, pods: Sequence[Pod], nodes: Sequence[Node] = NODES) -> BidPrice:
        """A cycle of the loop: the packer is taken where a pod waits, and the slow work is done between cycles."""
        policy = self.live.observe(seen(pods, nodes))
        assert isinstance(policy, BidPrice)
        before = policy.book
        if any(each.node is None for each in pods):
            self.live.packer(seen(pods, nodes))
        work = self.live.slow_work()
        if work is not None:
            work()()
        self.made += policy.book is not before
        return policy


def test_where_nothing_waits_nothing_is_made_and_the_fleet_is_still_observed() -> None:
    cycles = Cycles()
    cycles.cycle(running("p", "q"))

    policy = cycles.cycle(running("q", *(f"new-{n}" for n in range(3 * MANY_PODS))))

    assert cycles.made == 0
    assert policy.mix.pods == 3 * MANY_PODS


def test_at_a_cold_start_the_pods_that_are_present_are_the_first_evidence() -> None:
    policy = Cycles().cycle([*running("p"), *waiting(1, gpus=4)])

    assert set(policy.book.shares.classes) == {class_of(shape(4)), class_of(running("p")[0].shape)}
    assert policy.book.shares.pods == 2
    assert policy.mix.pods == 0  # none of them arrived


def test_an_empty_cluster_starts_without_prices_and_gets_them_with_the_first_pod_that_arrives() -> None:
    cycles = Cycles()
    none = cycles.cycle([]).book
    one = cycles.cycle(waiting(1)).book

    assert none.shares.classes == ()
    assert one.shares.classes == (class_of(shape(1)),)


def test_a_pod_that_waits_in_vain_is_counted_once_and_makes_no_prices_again() -> None:
    cycles = Cycles()
    for _ in range(2 * MANY_PODS):
        policy = cycles.cycle([*running("p"), *waiting(1, gpus=16)])

    assert cycles.made == 1
    assert policy.mix.pods == 0


def test_new_prices_are_used_from_the_plan_after_the_one_that_made_them_due() -> None:
    live = LivePacker(bid_price)
    live.observe(seen(waiting(1)))
    first = live.packer(seen(waiting(1))).policy
    assert isinstance(first, BidPrice)
    old = first.book
    live.observe(seen(waiting(1 + MANY_PODS)))

    during = live.packer(seen(waiting(1))).policy
    book_during = first.book
    work = live.slow_work()
    assert work is not None
    work()()

    assert during is first
    assert book_during is old
    assert first.book is not old


def test_a_fleet_that_grows_by_a_half_is_priced_again_beside_the_plans() -> None:
    cycles = Cycles()
    cycles.cycle(waiting(2))

    policy = cycles.cycle(waiting(2), [*NODES, *MORE])

    assert cycles.made == 2
    assert policy.book.kinds.capacity_gpus == 8 * 7


def test_prices_of_other_gpu_types_are_never_used() -> None:
    cycles = Cycles()
    was = cycles.cycle(waiting(2))
    renamed = [node(each.name, gpus=8, gpu_type="A10") for each in NODES]

    live = cycles.live
    live.observe(seen(waiting(2), renamed))
    policy = live.packer(seen(waiting(2), renamed)).policy

    assert policy is was
    assert was.book.kinds.gpu_type_names == ("A10",)


def test_another_share_of_the_cluster_is_a_cold_start() -> None:
    cycles = Cycles()
    was = cycles.cycle(waiting(2))

    assert cycles.cycle(waiting(2), [node(f"other-{n}", gpus=8) for n in range(4)]) is not was


def test_every_packer_starts_from_the_snapshot_alone() -> None:
    live = LivePacker(lambda known: Clustering(len(known.fleet.nodes)))
    now = seen([pod("p", gpus=1, on="b", devices=(0,)), pod("w", gpus=1)])
    tried = live.packer(now)
    choice = tried.choose(shape(1))
    assert choice is not None
    tried.place(shape(1), choice)

    again = live.packer(now)
    policy: Policy = again.policy

    assert again.ledger.gpu_milli.tolist() == now.free().gpu_milli.tolist()
    assert policy is tried.policy
    assert again.choose(shape(1)) == choice


def odd_ones(count: int) -> list[Pod]:
    """Pods that fit nowhere, each with constraints of its own: five requirements."""
    odd = []
    for number in range(count):
        terms = tuple((Requirement("disk", "In", (f"v{number}-{n}",)),) for n in range(5))
        odd.append(Pod(f"odd-{number}", replace(shape(9), node_terms=terms)))
    return odd


def test_constraints_of_pods_that_wait_are_evaluated_once_and_not_in_every_plan() -> None:
    """A flood of pods that fit nowhere takes this work once; another label on a node brings it back."""
    live, pods = LivePacker(bid_price), odd_ones(20)
    labelled = [node(name, gpus=8, labels={"disk": "v3-1"}) for name in "abcd"]

    def work(nodes: Sequence[Node]) -> int:
        """Requirements that a plan evaluates."""
        packer = live.packer(seen(pods, nodes))
        before = packer.filter.matches.evaluated
        for each in pods:
            packer.eligible(each.shape)
        return packer.filter.matches.evaluated - before

    assert [work(NODES), work(NODES), work(labelled), work(labelled)] == [100, 0, 100, 0]
