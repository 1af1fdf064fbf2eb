"""Builders for inputs of the mix decider: a test states only the tables that matter to it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster.demand import Demand, LengthGrid, Slo, ThroughputProfile
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService
from placement.budget import Budget
from placement.mix.optimizer import answer_mix, work_of
from placement.mix.problem import MixAnswer, MixQuestion, Need
from placement.mix.problem_builder import need_of, offer_of, stocked
from placement.stock import Stock

Table = Sequence[Sequence[float]]

WORKED_EXAMPLE = {
    "A10G": (1.01, ((2, 1), (5, 2))),
    "A100": (3.67, ((20, 20), (40, 20))),
}
"""Price and requests/s per bucket. With 30 requests/s over ((0.2, 0.1), (0.5, 0.2)) the cheapest mix is $6.70."""


def of_types(counts: Mapping[str, int]) -> dict[InstanceType, int]:
    """Instances of one device, given by GPU type."""
    return {InstanceType(gpu_type): count for gpu_type, count in counts.items()}


def grid(rows: int, columns: int) -> LengthGrid:
    return LengthGrid(tuple(100 * (i + 1) for i in range(rows)), tuple(50 * (j + 1) for j in range(columns)))


def profile(gpu_type: str, table: Table, *, tpot_s: float = 0.1, **rest: Any) -> ThroughputProfile:
    array = np.array(table, dtype=np.float64)
    about = {"model": "m", "grid": grid(*array.shape), "slo": Slo(tpot_s), **rest}
    return ThroughputProfile(gpu_type=gpu_type, requests_per_s=array, **about)


def demand(rate: float, share: Table = ((1.0,),), on: LengthGrid | None = None) -> Demand:
    array = np.array(share, dtype=np.float64)
    return Demand(rate, on or grid(*array.shape), array)


def service(name: str = "ns/chat", rate: float = 1.0, share: Table = ((1.0,),), **rest: Any) -> ModelService:
    """Without headroom unless the test says otherwise, so that its numbers can be worked out by hand."""
    about = {"model": "m", "demand": demand(rate, share), "slo": Slo(0.1), "headroom_share": 0.0, **rest}
    return ModelService(name=name, **about)


def need(
    offers: Mapping[str, tuple[float, Table]], rate: float, share: Table, *, slice_factor: int | None = 1, **rest: Any
) -> Need:
    """offers: GPU type → (price, requests/s per bucket)."""
    wanted = np.array(share, dtype=np.float64)
    on = grid(*wanted.shape)
    cells = tuple((int(i), int(j)) for i, j in np.argwhere(wanted > 0))
    rates = np.array([wanted[cell] * rate for cell in cells])
    about = {"service": "ns/chat", "slo": Slo(0.1), "headroom_share": 0.0, **rest}
    return Need(
        grid=on,
        cells=cells,
        rate_per_s=rates,
        offers=tuple(offer_of(profile(n, table), price, on, cells, rates) for n, (price, table) in offers.items()),
        slice_factor=slice_factor,
        **about,
    )


def question(*needs: Need, stock: Mapping[str, int] | None = None, **rest: Any) -> MixQuestion:
    return MixQuestion(needs, {name: Stock(count) for name, count in (stock or {}).items()}, **rest)


def still() -> float:
    """A clock that stands: the deadline never comes."""
    return 0.0


def ample() -> Budget:
    """The work of twenty seconds, and all the time there is."""
    return Budget(work_of(20))


def nothing() -> Budget:
    """No work for any solver."""
    return Budget(0.0)


def answered(asked: MixQuestion, **rest: Any) -> MixAnswer:
    found = answer_mix(asked, ample(), **rest)
    assert isinstance(found, MixAnswer), found
    return found


def counts(answer: MixAnswer, asked: MixQuestion, which: int = 0) -> dict[str, int]:
    pairs = zip(asked.needs[which].offers, answer.mixes[which].instances.tolist(), strict=True)
    return {offer.gpu_type: count for offer, count in pairs}


def hard_need(seed: int, name: str = "ns/hard") -> Need:
    """A need of four GPU types and sixteen buckets, with room for bursts; with seed 0 its search takes three rounds."""
    rng = np.random.default_rng(seed)
    share = rng.random((4, 4))
    offers = {f"t{g}": (round(rng.uniform(0.7, 8), 3), rng.uniform(0.5, 6, (4, 4)).round(2).tolist()) for g in range(4)}
    wanted: Table = (share / share.sum()).tolist()
    return replace(need(offers, 40.0, wanted, slice_factor=8, headroom_share=None), service=name)


def seats(snapshot: Snapshot, instance_type: InstanceType) -> int:
    """Instances of a type that the nodes hold for the first service, without others."""
    need = need_of(snapshot.services[0], snapshot)
    assert isinstance(need, Need)
    (stocked_need,), stock = stocked(snapshot, [need])
    (offer,) = (each for each in stocked_need.offers if each.instance_type == instance_type)
    return sum(stock[name].holds(offer.footprint) for name in offer.stocks)
