"""The leader ends, or stands still, before and after each step of a decision that takes several: what it began is done.

A gang that preempts, pods that move for a wide one, and a team that takes its share back, each in memory.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.chaos.compositions import FIRST, LEADER, SECOND, Composition, Step
from tests.chaos.in_memory import Object, Play

NODES = tuple({"name": f"n{n}", "gpus": 4, "pool": "bind", "product": "NVIDIA-L4"} for n in range(4))
ASKED_S = 6.0
"""When the decision is asked for; the fleet is full since some seconds."""


def pods(prefix: str, count: int, gpus: int = 1, at_s: float = 0.0, **more: object) -> list[Step]:
    asked = {"do": "pod", "gpus": gpus, "mode": "bind", "priority": 0, "gang": "", **more}
    return [{"at": at_s, "name": f"{prefix}{n}", **asked} for n in range(count)]


def gang_that_preempts() -> list[Step]:
    gang = {"at": ASKED_S, "do": "gang", "name": "g", "min": 3, "loss": "Refill"}
    return [*pods("p", 16), gang, *pods("g-", 3, 2, ASKED_S, priority=100, gang="g")]


def pods_that_move() -> list[Step]:
    """Two of four devices of each node are free, and a pod wants four of one: two move. Others come meanwhile, who have
    room only where no seat of these is, and no more than that."""
    gone = [{"at": 4.0, "do": "owner deletes", "name": f"p{n}"} for n in range(16) if n % 4 < 2]
    strangers = pods("x", 4, at_s=ASKED_S + 0.5)
    return [*pods("p", 16, movable=True), *gone, *pods("w", 1, 4, ASKED_S), *strangers]


def share_taken_back() -> list[Step]:
    teams = [{"at": 0.0, "do": "team", "name": name, "share": 8, "least": 1} for name in (FIRST, SECOND)]
    return [*teams, *pods("p", 16), *pods("s", 6, at_s=ASKED_S, team=SECOND)]


@dataclass(frozen=True)
class Decision:
    steps: Sequence[Step]
    stops: int
    """Pods that it stops."""
    wanted: str
    """Prefix of the names of the pods that it is for."""


DECISIONS: Mapping[str, Decision] = {
    "a gang preempts": Decision(gang_that_preempts(), 6, "g-"),
    "pods move": Decision(pods_that_move(), 2, "w"),
    "a share is taken back": Decision(share_taken_back(), 6, "s"),
}


def composition(decision: Decision, seed: int = 0, more: Sequence[Step] = ()) -> Composition:
    steps = sorted((*decision.steps, *more), key=lambda step: float(step["at"]))
    return Composition(seed, NODES, tuple(steps), operators=2, preempts=True, ends_s=12.0)


@dataclass(frozen=True)
class End:
    """How a history ended."""

    violations: tuple[str, ...]
    stopped: int
    struck: int
    """How often the leader ended or stood still at a step."""
    writes: int
    """Writes about pods since the decision was asked for."""
    waiting: tuple[str, ...]
    """Pods that the decision is for and that do not run, and those that moved and do not."""


def played(composition: Composition, decision: Decision) -> End:
    play = Play(composition)
    verdict = play.run()
    pods: list[Object] = play.server.all("/api/v1/pods")
    moved = ("w", "p", "x") if decision.wanted == "w" else (decision.wanted,)
    waiting = (
        name
        for pod in pods
        if (name := pod["metadata"]["name"]).startswith(moved) and pod["status"].get("phase") != "Running"
    )
    writes = sum(at_s >= ASKED_S and "/pods/" in path for at_s, _, path in play.server.writes)
    done = Counter(verdict.injected)
    struck = sum(count for what, count in done.items() if what.endswith("a write"))
    return End(verdict.violations, done["stopped by an operator"], struck, writes, tuple(waiting))


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_carried_out_where_nothing_goes_wrong(name: str) -> None:
    decision = DECISIONS[name]

    end = played(composition(decision), decision)

    assert end == End((), decision.stops, 0, end.writes, ())


@pytest.mark.parametrize("name", DECISIONS)
@pytest.mark.parametrize(("deed", "every"), [("kill", 1), ("freeze", 3)])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_decision_is_carried_out_although_its_leader_ends_at_any_step(
    name: str, deed: str, every: int, side: str
) -> None:
    """No pod is lost, no device has two, no seat is left behind, and nobody else is stopped for it."""
    decision = DECISIONS[name]
    steps = played(composition(decision), decision).writes
    assert steps > decision.stops

    for nth in range(1, steps + 1, every):
        strike = {"at": ASKED_S - 0.01, "do": "failpoint", "who": LEADER, "nth": nth, "of": "/pods/", "side": side,
                  "deed": deed, "for": 25.0}  # fmt: skip
        end = played(composition(decision, nth, [strike]), decision)

        assert replace(end, writes=0) == End((), decision.stops, 1, 0, ()), nth
