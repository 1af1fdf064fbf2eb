"""Seats around the running instances that stay: a plan moves none of them to make room for a wider one."""

from collections.abc import Iterable

from placement.mix.admission import Answered
from placement.mix.problem import Need
from placement.mix.stock_builder import Claimant
from placement.seating.footprint import Footprint


def staying(answered: Iterable[Answered]) -> frozenset[Claimant]:
    """Services' instances of a type of which these mixes stop none."""
    return frozenset(
        (need.service, offer.instance_type)
        for question, answer in answered
        for need, mix in zip(question.needs, answer.mixes, strict=True)
        for offer, count in zip(need.offers, mix.instances.tolist(), strict=True)
        if 0 < need.running_count(offer) <= count
    )


def may_be_in_the_way(stay: Iterable[Claimant], needs: Iterable[Need]) -> bool:
    """Whether instances of another footprint might use the same GPU type as one of those that stay."""
    footprints: dict[str, set[Footprint]] = {}
    for need in needs:
        for offer in need.offers:
            footprints.setdefault(offer.gpu_type, set()).add(offer.footprint)
    return any(len(footprints.get(instance_type.gpu_type, ())) > 1 for _, instance_type in stay)
