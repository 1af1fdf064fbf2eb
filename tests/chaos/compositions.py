"""Compositions of faults as data: a fleet, a workload and what goes wrong, drawn by a seed; each can shrink to less.

A composition says nothing of how it is carried out: in memory (`in_memory.py`) or on a real server (`on_server.py`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

KEPT = Path(__file__).parent / "kept"
"""Histories that failed once, each with the command that repeats it."""
PRODUCTS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-L4")
MODES = ("bind", "gate")
LEADER = "the leader"
FIRST, SECOND = "first", "second"
"""Teams: pods are of the first where their step does not say another."""
Step = Mapping[str, Any]
"""`at`: seconds from the start; `do`: what; the rest depends on that (`DEEDS` of an executor)."""

WORKLOAD = ("team", "pod", "gang", "delete", "finish", "owner deletes")
"""What people do; it goes first when a composition shrinks to fewer faults, never before them."""


@dataclass(frozen=True, slots=True)
class Composition:
    seed: int
    nodes: tuple[Mapping[str, Any], ...]
    """`name`, `gpus`, `pool` and `product` of each."""
    steps: tuple[Step, ...]
    operators: int = 1
    fenced: bool = True
    preempts: bool = False
    ends_s: float = 30.0
    """When everything that went wrong is set right."""

    def as_json(self) -> str:
        """A line for each node and step, so that people can read and edit it."""
        fields = asdict(self)
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items() if name not in _LONG]
        for name in _LONG:
            inner = ",\n  ".join(json.dumps(each) for each in fields[name])
            lines.append(f" {json.dumps(name)}: [\n  {inner}]")
        return "{\n" + ",\n".join(lines) + "\n}\n"


_LONG = ("nodes", "steps")


def composition_from(text: str) -> Composition:
    read: dict[str, Any] = json.loads(text)
    fields: dict[str, Any] = {name: value for name, value in read.items() if name not in ("found", "repeat")}
    return Composition(**{**fields, **{name: tuple(read[name]) for name in _LONG}})


def drawn(seed: int, *, on_server: bool = False) -> Composition:
    """The composition of this seed. on_server: with what can be done to a real server and real processes only."""
    chance = Random(f"composition {seed}")  # noqa: S311 - faults, not secrets
    nodes = tuple(
        {"name": f"n{n}", "gpus": chance.choice((2, 4, 4, 8)),
         "pool": MODES[n % 2] if chance.random() < 0.7 else "bind", "product": chance.choice(PRODUCTS)}
        for n in range(chance.randint(3, 5))
    )  # fmt: skip
    ends_s = chance.uniform(8.0, 25.0)
    steps = [*_work(chance, nodes, ends_s)]
    operators = chance.choice((1, 2, 2))
    faults: Mapping[str, _Draw] = {**_FAULTS, **({} if on_server else _IN_MEMORY)}
    for _ in range(chance.randint(1, 7)):
        name = chance.choice(tuple(faults))
        at_s = round(chance.uniform(0.5, ends_s * 0.9), 2)
        steps.append({"at": at_s, "do": name, **faults[name](chance, nodes, operators)})
    fenced, preempts = chance.random() < 0.85, chance.random() < 0.5
    more = Random(f"teams and moves of {seed}")  # noqa: S311 - beside the other chance: the rest stays as it was
    if more.random() < 0.5:
        steps = _with_moves(more, nodes, steps, ends_s)
    if more.random() < 0.4:
        steps, preempts = _with_teams(more, nodes, steps), True
    steps.sort(key=lambda step: step["at"])
    return Composition(seed, nodes, tuple(steps), operators, fenced, preempts, round(ends_s, 1))


def _work(chance: Random, nodes: Sequence[Mapping[str, Any]], ends_s: float) -> list[Step]:
    pools = sorted({node["pool"] for node in nodes})
    steps: list[Step] = []
    names: list[str] = []
    for number in range(chance.choice((0, 1, 1, 2))):
        members = chance.randint(2, 4)
        at_s, mode, gpus = chance.uniform(0.0, ends_s * 0.7), chance.choice(pools), chance.choice((1, 1, 2))
        priority = chance.choice((0, 0, 100))
        gang = f"g{number}"
        steps.append({"at": round(at_s, 2), "do": "gang", "name": gang, "min": members,
                      "loss": chance.choice(("Refill", "Refill", "Restart", "Continue"))})  # fmt: skip
        spread_s = chance.choice((0.0, 0.1, 3.0))
        for n in range(members + chance.choice((0, 0, 1))):
            steps.append({"at": round(at_s + chance.uniform(0.0, spread_s), 2), "do": "pod", "name": f"{gang}-{n}",
                          "gpus": gpus, "mode": mode, "priority": priority, "gang": gang})  # fmt: skip
            names.append(f"{gang}-{n}")
    for number in range(chance.randint(2, 6)):
        steps.append({"at": round(chance.uniform(0.0, ends_s * 0.8), 2), "do": "pod", "name": f"p{number}",
                      "gpus": chance.choice((1, 1, 1, 2, 2, 4)), "mode": chance.choice(pools),
                      "priority": chance.choice((0, 0, 0, 100)), "gang": ""})  # fmt: skip
        names.append(f"p{number}")
    for name in chance.sample(names, min(len(names), chance.randint(0, 3))):
        what = chance.choice(("delete", "finish", "owner deletes"))
        if what == "owner deletes" and name.startswith("g"):
            what = "delete"
        steps.append({"at": round(chance.uniform(3.0, ends_s * 0.9), 2), "do": what, "name": name})
    return steps


def _is_single(step: Step) -> bool:
    return step["do"] == "pod" and not step["gang"]


def _with_moves(chance: Random, nodes: Sequence[Mapping[str, Any]], steps: Sequence[Step], ends_s: float) -> list[Step]:
    """Most single pods may be moved, more small ones than fit have come and partly gone, and then a wide one comes."""
    found = [{**step, "movable": True} if _is_single(step) and chance.random() < 0.8 else step for step in steps]
    pool = chance.choice(sorted({node["pool"] for node in nodes}))
    sizes = [node["gpus"] for node in nodes if node["pool"] == pool]
    count, wide_s = sum(sizes), round(ends_s * chance.uniform(0.3, 0.7), 2)
    for n in range(count):
        name = f"m{n}"
        found.append({"at": round(chance.uniform(0.0, 1.0), 2), "do": "pod", "name": name, "gpus": 1, "mode": pool,
                      "priority": 0, "gang": "", "movable": True})  # fmt: skip
        if chance.random() < 0.6:
            found.append({"at": round(wide_s * chance.uniform(0.5, 0.9), 2), "do": "owner deletes", "name": name})
    wide = {"at": wide_s, "do": "pod", "gpus": max(sizes), "mode": pool, "priority": 0, "gang": ""}
    return [*found, *({**wide, "name": f"w{n}"} for n in range(chance.choice((1, 1, 2)))), _strike_at(chance, wide_s)]


def _strike_at(chance: Random, at_s: float) -> Step:
    """The leader ends or stands still at a step of what it decides then."""
    return {"at": at_s, "do": "failpoint", "who": LEADER, "nth": chance.randint(1, 8), "of": "/pods/",
            "side": chance.choice(("before", "after")), "deed": chance.choice(("kill", "freeze")),
            "for": round(chance.uniform(1.0, 25.0), 1)}  # fmt: skip


def _with_teams(chance: Random, nodes: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> list[Step]:
    """Two teams share all devices; gangs are of the first, and what comes late is mostly of the second."""
    last_s = max(step["at"] for step in steps)
    total = sum(node["gpus"] for node in nodes)
    share = chance.randint(0, total)
    late = {step["name"]: step["at"] / (last_s or 1.0) for step in steps if _is_single(step)}
    names = {name for name, share_of_time in late.items() if chance.random() < 0.2 + 0.6 * share_of_time}
    least_s = chance.choice((1, 1, 5))
    teams: list[Step] = [
        {"at": 0.0, "do": "team", "name": name, "share": own, "least": least_s}
        for name, own in ((FIRST, total - share), (SECOND, share))
    ]
    strike = _strike_at(chance, round(last_s * chance.uniform(0.3, 0.8), 2))
    return [*teams, strike, *({**step, "team": SECOND} if step.get("name") in names else step for step in steps)]


_Draw = Callable[[Random, Sequence[Mapping[str, Any]], int], dict[str, Any]]


def _who(chance: Random, _: object, operators: int) -> dict[str, Any]:
    return {"who": chance.randrange(operators)}


def _for_s(chance: Random, most_s: float = 20.0) -> float:
    return round(min(most_s, chance.choice((0.5, 3.0, 8.0, 20.0)) * chance.uniform(0.6, 1.4)), 2)


def _on_node(**more: Callable[[Random], Any]) -> _Draw:
    def draw(chance: Random, nodes: Sequence[Mapping[str, Any]], _: int) -> dict[str, Any]:
        node = chance.choice([node["name"] for node in nodes])
        return {"node": node, "for": _for_s(chance), **{name: of(chance) for name, of in more.items()}}

    return draw


def _failpoint(chance: Random, _: object, operators: int) -> dict[str, Any]:
    side = chance.choice(("before", "after"))
    return {"who": chance.randrange(operators), "nth": chance.randint(1, 12), "side": side,
            "deed": chance.choice(("kill", "kill", "freeze")), "for": round(chance.uniform(1.0, 25.0), 1)}  # fmt: skip


_FAULTS: Mapping[str, _Draw] = {
    "kill": _who,
    "stop": _who,
    "freeze": lambda chance, nodes, operators: {**_who(chance, nodes, operators), "for": _for_s(chance, 28.0)},
    "failpoint": _failpoint,
    "requests": lambda chance, *_: {
        "for": _for_s(chance), "refuse": chance.choice((0.0, 0.2, 0.6)), "lose": chance.choice((0.0, 0.2, 0.5)),
        "delay": chance.choice((0.0, 0.0, 0.3, 6.0))},
    "watches cut": lambda *_: {},
    "watches expire": lambda *_: {},
    "clock": lambda chance, nodes, operators: {
        **_who(chance, nodes, operators), "step": chance.choice((-86400, -3600, -5, 5, 3600, 86400))},
    "node gone": _on_node(),
    "cordon": _on_node(),
    "taint": _on_node(effect=lambda chance: chance.choice(("NoSchedule", "NoExecute"))),
    "relabel": _on_node(pool=lambda chance: chance.choice(("none", *MODES))),
    "shrink": _on_node(gpus=lambda chance: chance.choice((0, 1, 2))),
    "budget": lambda chance, *_: {"for": _for_s(chance)},
    "quota": lambda chance, *_: {"for": _for_s(chance), "gpus": chance.choice((1, 4))},
    "flood": lambda chance, *_: {"for": _for_s(chance), "pods": chance.randint(3, 10)},
    "stranger": _on_node(gpus=lambda chance: chance.choice((1, 2))),
    "tamper": lambda chance, *_: {"pod": f"p{chance.randrange(6)}", "how": chance.choice(
        ("annotate", "forge devices", "forge node", "unknown type", "annotate gang"))},
    "evict": lambda chance, *_: {"pod": f"p{chance.randrange(6)}"},
}  # fmt: skip
_IN_MEMORY: Mapping[str, _Draw] = {
    "outage": lambda chance, *_: {"for": _for_s(chance)},
    "rollback": lambda chance, *_: {"back": round(chance.uniform(1.0, 15.0), 1), "for": chance.choice(
        (0.0, round(chance.uniform(0.1, 8.0), 1)))},
    "events": lambda chance, *_: {
        "how": chance.choice(("doubled", "swapped", "lost")), "count": chance.randint(1, 10)},
    "events late": lambda chance, *_: {"for": _for_s(chance), "by": chance.choice((0.05, 0.5, 3.0))},
    "overtaken": lambda chance, *_: {
        "nth": chance.randint(1, 3), "by": chance.choice((0.1, 1.0, 4.0, 8.0)),
        "how": chance.choice(("delete", "update", "crowd", "crowd that stays")),
        "then": chance.choice(("", "", "kill", "freeze"))},
    "fence late": lambda chance, *_: {"for": _for_s(chance), "by": chance.choice((0.5, 3.0))},
    "old crd": lambda chance, *_: {"for": _for_s(chance), "field": chance.choice(("wholeSince", "halfStartedSince",
                                                                                  "running"))},
}  # fmt: skip


def shrunk(failing: Composition, still_fails: Callable[[Composition], bool], most_runs: int = 200) -> Composition:
    """A composition with fewer steps that fails, too: no single step of it can go.

    Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (ddmin).
    """
    steps, pieces, runs = list(failing.steps), 2, 0
    while len(steps) >= 2 and runs < most_runs:
        size = -(-len(steps) // pieces)
        for start in range(0, len(steps), size):
            left = steps[:start] + steps[start + size :]
            runs += 1
            if still_fails(replace(failing, steps=tuple(left))):
                steps, pieces = left, max(2, pieces - 1)
                break
        else:
            if pieces >= len(steps):
                break
            pieces = min(len(steps), 2 * pieces)
    kept = replace(failing, steps=tuple(steps))
    for simpler in (replace(kept, operators=1), replace(kept, preempts=False)):
        if simpler != kept and all(_can_be_done_by(simpler.operators, step) for step in steps) and still_fails(simpler):
            kept = simpler
    return kept


def _can_be_done_by(operators: int, step: Step) -> bool:
    who = step.get("who", 0)
    return who == LEADER or who < operators


def keep(name: str, composition: Composition, found: Sequence[str], folder: Path = KEPT) -> Path:
    """Writes a failed history, with what was found and the command that repeats it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    where = file.relative_to(KEPT.parents[2]) if file.is_relative_to(KEPT.parents[2]) else file
    head = {"found": list(found)[:5], "repeat": f"python -m tests.chaos --replay {where}"}
    lines = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    file.write_text("{\n" + lines + composition.as_json().removeprefix("{\n"), encoding="utf-8")
    return file
