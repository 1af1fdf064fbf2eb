"""Feasibility check of a mix, without any solver."""

import numpy as np

from placement.mix.headroom import room_needed
from placement.mix.problem import Mix, MixQuestion, Need, pool_load, serves_any
from placement.mix.seats import groups_of, seats_of

TOLERANCE = 1e-6
"""Tolerance for instances, slices and fractions: solvers work to 1e-7 (HiGHS, feasibility), and errors add up."""


def violations(question: MixQuestion, mixes: tuple[Mix, ...]) -> tuple[str, ...]:
    """Violations of these mixes, in words; empty when they are feasible."""
    found = [
        f"{need.service}: {wrong}"
        for need, mix in zip(question.needs, mixes, strict=True)
        for wrong in (*_share_violations(need, mix), *_room_violations(need, mix))
    ]
    return (*found, *_stock_violations(question, mixes))


def is_feasible(question: MixQuestion, mixes: tuple[Mix, ...]) -> bool:
    return not violations(question, mixes)


def _share_violations(need: Need, mix: Mix) -> list[str]:
    wrong = []
    if (mix.instances < 0).any() or (mix.share < 0).any():
        wrong.append("a count or a fraction is negative")
    if not np.allclose(mix.share.sum(axis=1), 1.0, rtol=0, atol=TOLERANCE):
        wrong.append("the fractions of a bucket do not add up to 1")
    if need.slice_factor is not None:
        slices = mix.share * need.slice_factor
        if not np.allclose(slices, np.round(slices), rtol=0, atol=TOLERANCE * need.slice_factor):
            wrong.append("a slice is split")
    return wrong


def _room_violations(need: Need, mix: Mix) -> list[str]:
    wrong = []
    for g, offer in enumerate(need.offers):
        load, variance = pool_load(offer, mix.share[:, g])
        room = room_needed(load, variance, need.headroom_share)
        if not room <= mix.instances[g] + TOLERANCE * max(1.0, room):
            wrong.append(f"{mix.instances[g]} instances on {offer.instance_type} where {room:.3f} are needed")
        elif not mix.instances[g] and serves_any(offer, mix.share[:, g]):
            wrong.append(f"requests are routed to {offer.instance_type}, which has no instance")
    return wrong


def _stock_violations(question: MixQuestion, mixes: tuple[Mix, ...]) -> list[str]:
    if seats_of(question, mixes) is not None:
        return []
    groups = groups_of(question.needs, mixes)
    wrong = []
    for name, stock in question.stock.items():
        users = {group: count for group, count in groups.items() if name in group.stocks}
        spent = sum(count * group.footprint.gpus for group, count in users.items())
        if spent > stock.gpus and all(group.stocks == (name,) for group in users):
            wrong.append(f"{spent} {name} are used, but only {stock.gpus} exist")
    return wrong or ["the stock has no seats for all instances together"]
