"""Bid-price packing: where pods go, which resources are kept free for which pods, and what the policy knows."""

from typing import ClassVar

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.snapshot import Snapshot
from placement.engine.ledger import Ledger
from placement.engine.packer import Choice, Packer
from placement.policies.bid_price import WINDOW_PODS, BidPrice
from placement.prices.classes import ClassShares, class_of, kinds_of, shares_from, shares_of
from placement.prices.price_book import BidSettings, PriceBook, prices_for
from tests.builders.fleet import Node, node, pod, shape, world

HALF, WHOLE, CPU_ONLY = shape(1, 500, cpu_milli=4000), shape(1, cpu_milli=8000), shape(0, cpu_milli=8000)


def policy(seen: Snapshot, expected: ClassShares | None = None) -> BidPrice:
    return BidPrice(kinds_of(seen.nodes, seen.gpu_type_names), expected)


def packer(seen: Snapshot, expected: ClassShares | None = None) -> Packer:
    return Packer(seen, policy(seen, expected))


def book(fleet: list[Node], expected: ClassShares) -> PriceBook:
    seen = world(fleet)
    return prices_for(expected, kinds_of(seen.nodes, seen.gpu_type_names), BidSettings(draws=2))


def chosen(engine: Packer, asked: object) -> str | None:
    choice = engine.choose(asked)  # type: ignore[arg-type]
    return None if choice is None else engine.nodes.names[choice.node]


def test_a_half_joins_a_half_so_that_a_gpu_stays_whole() -> None:
    fleet = [node("idle", gpus=1), node("shared", gpus=1)]
    running = pod("running", 1, gpu_milli=500, cpu_milli=4000, on="shared", devices=(0,))

    assert chosen(packer(world(fleet, [running]), shares_of([HALF, WHOLE])), HALF) == "shared"


def test_a_pod_that_asks_for_cpu_alone_goes_where_no_gpu_needs_it() -> None:
    # On `lean` 8 cores less leave 8 for two GPUs, which whole pods need 16 for; `rich` has 32 to spare.
    fleet = [node("lean", gpus=2, cpu_milli=16_000), node("rich", gpus=2, cpu_milli=48_000)]

    assert chosen(packer(world(fleet), shares_of([WHOLE, WHOLE, CPU_ONLY])), CPU_ONLY) == "rich"


def test_a_pod_that_may_run_anywhere_leaves_a_scarce_type_to_pods_that_need_it() -> None:
    fleet = [node("scarce", gpus=1, gpu_type="T4"), *(node(f"n{i}", gpus=1, gpu_type="G2") for i in range(3))]
    picky = shape(1, cpu_milli=8000, gpu_types=("T4",))

    assert chosen(packer(world(fleet), shares_of([WHOLE, WHOLE, WHOLE, picky])), WHOLE) != "scarce"


def test_nothing_that_fits_is_refused() -> None:
    engine = packer(world([node("a", gpus=1)]), shares_of([WHOLE]))

    assert chosen(engine, shape(1, 810, cpu_milli=100)) == "a"


def test_before_the_first_pod_load_is_kept_together() -> None:
    fleet = [node("idle", gpus=4, cpu_milli=64_000), node("used", gpus=4, cpu_milli=64_000)]
    running = pod("running", 1, cpu_milli=8000, on="used", devices=(0,))

    assert chosen(packer(world(fleet, [running])), WHOLE) == "used"


def test_the_first_pod_teaches_what_to_keep_free() -> None:
    fleet = [node("idle", gpus=1), node("shared", gpus=1)]
    running = pod("running", 1, gpu_milli=500, cpu_milli=4000, on="shared", devices=(0,))
    engine = packer(world(fleet, [running]))
    engine.policy.arrived(WHOLE)
    engine.policy.upkeep(engine.ledger)

    assert chosen(engine, HALF) == "shared"


def test_prices_come_with_the_first_pod_and_then_whenever_knowledge_doubled() -> None:
    seen = world([node("a", gpus=4)])
    learning, priced_at = policy(seen), []
    for number in range(1, 600):
        learning.arrived(HALF)
        if learning.wants_prices:
            priced_at.append(number)
            learning.upkeep(Ledger.of(seen))

    assert priced_at == [2**n for n in range(10)]


def test_a_new_book_makes_the_engine_ask_again() -> None:
    seen = world([node("a", gpus=4)])
    learning = policy(seen)
    before = learning.version

    learning.reprice(book([node("a", gpus=4)], shares_of([HALF])))

    assert learning.version > before


def test_a_pod_that_is_tried_in_many_places_is_no_departure() -> None:
    seen = world([node("a", gpus=4)])
    learning = policy(seen)
    engine = Packer(seen, learning)
    for _ in range(2 * WINDOW_PODS):
        learning.arrived(HALF)
        engine.place(HALF, Choice(0, 0b1, 0.0))
        engine.remove(HALF, 0, 0b1)

    assert learning.turnover.share == 0.0


def test_fragments_of_wide_pods_weigh_more_where_pods_leave() -> None:
    settings = BidSettings()
    filling, half, churning = (settings.at_turnover(share) for share in (0.1, 0.55, 1.0))

    assert filling == settings
    assert churning.fragment_weight == settings.churning_fragment_weight
    assert churning.fragments_by_gpus == settings.churning_fragments_by_gpus
    assert filling.fragments_by_gpus < half.fragments_by_gpus < churning.fragments_by_gpus


def test_with_a_given_mix_nothing_is_learned() -> None:
    seen = world([node("a", gpus=4)])
    told = policy(seen, shares_of([WHOLE]))
    for _ in range(200):
        told.arrived(HALF)

    assert not told.wants_prices
    assert told.book.shares.classes == (class_of(WHOLE),)


def test_the_same_mix_and_fleet_give_the_same_prices() -> None:
    fleet, mix = [node("a", gpus=4, cpu_milli=20_000)], shares_of([HALF, WHOLE, WHOLE])

    assert book(fleet, mix).class_worth.tolist() == book(fleet, mix).class_worth.tolist()


class CountingBook(PriceBook):
    """Counts how often scarcity is computed."""

    asked: ClassVar[int] = 0

    def scarcity(self, idle_gpus: FloatArray, expected_gpus: float) -> FloatArray:
        CountingBook.asked += 1
        return super().scarcity(idle_gpus, expected_gpus)


def test_scarcity_is_computed_again_once_a_pod_was_placed() -> None:
    """Pods that fit nowhere, of which a tenant may make thousands, change nothing of it."""
    seen = world([node("a", gpus=2), node("t", gpus=2, gpu_type="T4")])
    engine, picky = packer(seen, shares_of([shape(1, gpu_types=("T4",))])), shape(1, gpu_types=("T4",))
    assert isinstance(engine.policy, BidPrice)
    book = engine.policy.book
    CountingBook.asked = 0
    engine.policy.reprice(CountingBook(**{name: getattr(book, name) for name in PriceBook.__dataclass_fields__}))

    for _ in range(5):
        assert engine.choose(shape(4)) is None
    once = CountingBook.asked
    choice = engine.choose(picky)
    assert choice is not None
    engine.place(picky, choice)
    engine.choose(picky)

    assert (once, CountingBook.asked) == (1, 2)


def test_scarcity_is_picky_demand_per_idle_gpu() -> None:
    # Half of the pods ask for one T4 each, half for any: of 6 GPUs expected 3 go to T4, of which 2 are idle: 3 / 2.
    fleet = [node("t", gpus=4, gpu_type="T4"), node("g", gpus=4, gpu_type="G2")]
    told = book(fleet, shares_of([WHOLE, shape(1, cpu_milli=8000, gpu_types=("T4",))]))

    assert told.kinds.gpu_type_names == ("G2", "T4")
    assert told.scarcity(np.array([4.0, 2.0]), 6.0) == pytest.approx([0, 1.5])


def test_few_observations_make_a_type_look_scarcer() -> None:
    fleet = [node("t", gpus=4, gpu_type="T4"), node("g", gpus=4, gpu_type="G2")]
    kinds = [(class_of(WHOLE), 8.0), (class_of(shape(1, cpu_milli=8000, gpu_types=("T4",))), 8.0)]
    seen = book(fleet, shares_from(kinds, pods=16))

    # Likely 1.5 as above. The share 0.5 of T4 has variance 0.5 / 16, to which the square of 1 / 16 is added for pods
    # that may want it and were not seen yet: 6 GPUs over 2 idle are 3 * sqrt(0.03516) = 0.5625 a deviation, and three
    # count. G2 has the second part alone: three times 6 / 4 * 1 / 16.
    assert seen.scarcity(np.array([4.0, 2.0]), 6.0) == pytest.approx([0.28125, 1.5 + 3 * 0.5625], abs=1e-3)


def test_a_type_that_no_pod_asked_for_yet_is_scarce_while_few_pods_were_seen() -> None:
    fleet = [node("scarce", gpus=1, gpu_type="T4"), *(node(f"n{i}", gpus=4, gpu_type="G2") for i in range(3))]
    kinds = kinds_of(world(fleet).nodes, ("G2", "T4"))
    few, many, known = (prices_for(shares_from([(class_of(WHOLE), 1.0)], pods), kinds) for pods in (4, 4000, np.inf))
    idle = np.array([12.0, 1.0])

    # Rule of three: 13 GPUs of which up to 3 / 4 may be picky about the one T4: 13 * 0.75 / 1.
    assert few.scarcity(idle, 13.0)[1] == pytest.approx(9.75)
    assert many.scarcity(idle, 13.0)[1] == pytest.approx(0.00975)
    assert known.scarcity(idle, 13.0)[1] == 0.0


def test_an_explanation_names_what_is_lost_and_adds_up_to_the_cost() -> None:
    engine = packer(world([node("a", gpus=2)]), shares_of([HALF, WHOLE]))

    terms = engine.policy.terms(WHOLE, engine.ledger, 0)

    assert set(terms) == {"value_lost", "hostable_lost", "fragments_grown", "looseness"}
    choice = engine.choose(WHOLE)
    assert choice is not None
    assert sum(terms.values()) == pytest.approx(choice.cost)
