"""One history: what happens to a world from a seed, and where its devices may draw more than a budget."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from simulator.power.agents import ROW_BREAKER, BreakerHeat
from tests.power_histories.hardware import MAX_W
from tests.power_histories.world import STEP_S, World, world_of

LASTS_S = 60.0
EVENTS = (
    "agent ends",
    "agent loses its record",
    "agent pauses",
    "clock jumps",
    "device is lost",
    "device returns",
    "driver resets",
    "node reboots",
    "new controller",
    "second controller",
    "controller pauses",
)


@dataclass
class Outcome:
    """Findings of one history."""

    seed: int
    happened: Counter[str] = field(default_factory=Counter)
    rises: int = 0
    over_s: float = 0.0
    """Time at which devices may draw more than a budget although none of them is at its limit after a boot."""
    over: float = 0.0
    """Highest of that, over the budget less 1."""
    booted_over_s: float = 0.0
    """Time at which only devices that no agent has limited since a reboot or a reset make it more."""
    booted_over: float = 0.0
    heat: float = 0.0
    """Highest heat of a cold breaker that carries that worst case all the time: 1 opens it."""


def history(seed: int, reboots: bool = True) -> Outcome:
    """The history of this seed. reboots: whether drivers reset and nodes reboot."""
    chance = Random(seed)  # noqa: S311 - a simulated world
    world, outcome = world_of(chance), Outcome(seed)
    heat = BreakerHeat(ROW_BREAKER, 1.0)
    kinds = [each for each in EVENTS if reboots or each not in ("driver resets", "node reboots")]
    due = sorted((chance.uniform(3, LASTS_S - 5), chance.choice(kinds)) for _ in range(chance.randint(0, 10)))
    while world.now_s < LASTS_S:
        while due and due[0][0] <= world.now_s:
            _, event = due.pop(0)
            outcome.happened[event] += 1
            happen(world, event)
        for node in world.nodes.values():
            for gpu in node.gpus.values():
                if chance.random() < 0.05:
                    gpu.wants_w = chance.choice((60.0, 60.0, 250.0, MAX_W))
        world.step()
        judge(world, outcome, heat)
    outcome.rises, outcome.heat = world.rises, heat.highest_share
    return outcome


def judge(world: World, outcome: Outcome, heat: BreakerHeat) -> None:
    over = world.over(world.limits_w(excused=False))
    heat.read(STEP_S, over)
    if over <= 1 + 1e-9:
        return
    plain = world.over(world.limits_w(excused=True))
    if plain > 1 + 1e-9:
        outcome.over_s += STEP_S
        outcome.over = max(outcome.over, plain - 1)
    else:
        outcome.booted_over_s += STEP_S
        outcome.booted_over = max(outcome.booted_over, over - 1)


def happen(world: World, event: str) -> None:
    """Lets one event happen."""
    chance, now_s = world.chance, world.now_s
    node = world.nodes[chance.choice(sorted(world.nodes))]
    gpu = node.gpus[chance.choice(sorted(node.gpus))]
    match event:
        case "agent ends" | "agent loses its record":
            node.end(now_s + chance.uniform(0, 15), keeps_record=event == "agent ends")
        case "agent pauses":
            node.paused_until_s = now_s + chance.uniform(0, 15)
        case "clock jumps":
            node.jump(chance.uniform(0, 20))
        case "device is lost":
            gpu.is_there = False
        case "device returns":
            for each in node.gpus.values():
                each.is_there = True
        case "driver resets":
            for each in node.gpus.values():
                each.reset()
        case "node reboots":
            node.reboot(now_s, now_s + 1.0)
        case "new controller" | "second controller":
            world.new_controller(beside=event == "second controller")
        case "controller pauses":
            world.controllers[-1].paused_until_s = now_s + chance.uniform(0, 15)
