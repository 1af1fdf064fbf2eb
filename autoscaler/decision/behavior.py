"""Limits on changes of the replicas, with the meaning of `behavior` in autoscaling/v2."""

import math
from collections.abc import Sequence

from cluster.autoscaling import Behavior, ScalingStep

Changes = Sequence[tuple[float, int]]


def stabilized(wanted: int, current: int, behavior: Behavior, recommended: Changes, at_s: float) -> int:
    """Most cautious recommendation of each direction's window: up to the lowest, down to the highest.

    recommended: earlier recommendations; this one counts too. Source: stabilizeRecommendationWithBehaviors of
    kube-controller-manager.
    """
    up = min([wanted, *_within(recommended, at_s, behavior.up.stabilization_s)])
    down = max([wanted, *_within(recommended, at_s, behavior.down.stabilization_s)])
    return min(max(current, up), down)


def within_steps(wanted: int, current: int, behavior: Behavior, changes: Changes, at_s: float) -> int:
    """The wanted replicas, or as many as the direction's tolerance and steps allow now."""
    rules = behavior.up if wanted > current else behavior.down
    if wanted == current or rules.select == "Disabled":
        return current
    if abs(wanted - current) <= rules.tolerance * current:
        return current
    if not rules.steps:
        return wanted
    reaches = [_reach(step, current, changes, at_s, up=wanted > current) for step in rules.steps]
    furthest = (max if (rules.select == "Max") == (wanted > current) else min)(reaches)
    return min(wanted, max(furthest, current)) if wanted > current else max(wanted, min(furthest, current))


def _reach(step: ScalingStep, current: int, changes: Changes, at_s: float, *, up: bool) -> int:
    """Replicas that a step allows: counted from those at the start of its period. From none, one can be started."""
    start = current - sum(_within(changes, at_s, step.period_s))
    if step.kind == "Pods":
        return math.floor(start + step.value if up else start - step.value)
    if not up:
        return math.trunc(start * (1 - step.value / 100))
    return max(1, math.ceil(start * (1 + step.value / 100)))


def _within(events: Changes, at_s: float, for_s: float) -> list[int]:
    return [number for instant, number in events if at_s - for_s < instant <= at_s]
