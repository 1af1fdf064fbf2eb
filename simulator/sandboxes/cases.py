"""Cases of agents on a node that is too small: whose memory collides, and by how much."""

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np

from simulator.sandboxes.runs import Policy, Run
from simulator.sandboxes.traces import AgentTrace, generated, paper_trio

Case = Literal["trio", "infeasible", "mixed"]
HINT_ERROR = 0.3


def agents_of(
    case: Case,
    seed: int,
    chance: np.random.Generator,
    known: Sequence[AgentTrace],
    count: int,
    density: float,
) -> tuple[tuple[AgentTrace, ...], float]:
    """Agents of a case, the first of high priority, and the node's budget in MiB."""
    if case == "mixed":
        pool = known or [generated(f"generated-{index}", 1000 * seed + index) for index in range(count)]
        chosen = tuple(pool[index] for index in chance.permutation(len(pool))[:count])
        # A static limit must hold the largest peak of the set: which task comes next is not known.
        return chosen, count * max(agent.peak_mib for agent in pool) / density
    trio = paper_trio(seed)
    share = {"trio": 0.87, "infeasible": 0.55}[case]
    return trio, share * sum(agent.peak_mib for agent in trio)


def runs_of(
    policies: Sequence[str],
    agents: tuple[AgentTrace, ...],
    budget_mib: float,
    memory_scale: float,
    time_scale: float,
    chance: np.random.Generator,
) -> Iterator[Run]:
    delays_s = tuple(float(delay) for delay in chance.uniform(0, 3 if len(agents) == 3 else 60, len(agents)))
    hints = tuple(
        tuple(float(hint) for hint in chance.uniform(1 - HINT_ERROR, 1 + HINT_ERROR, len(agent.phases)))
        for agent in agents
    )
    priorities = tuple(int(index % 4 == 0) for index in range(len(agents)))
    for policy in get_args(Policy):
        if policy in policies:
            yield Run(policy, agents, priorities, delays_s, budget_mib, hints, memory_scale, time_scale)
