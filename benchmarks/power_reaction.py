"""Reaction time of the power loop: from a budget breach in the telemetry to leases and limits, over loopback."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cases import MINUTES, Row, case
from cluster.errors import ConfigError, Mistake
from tests.agents import power_speakers
from tests.rigs.power_reaction import measured


@case(
    "power-reaction",
    "Time from a breach to lower leases and limits; 200 nodes of 8 fake devices.",
    quick={"nodes": 16, "gpus": 2, "agents": 1, "rounds": 1},
    needs=(MINUTES,),
)
def power_reaction(
    *, nodes: int = 200, gpus: int = 8, agents: int = 20, rounds: int = 4, seeds: Sequence[int] = (1,)
) -> Iterator[Row]:
    """A row a seed: a controller, agents with simulated devices, and simulated nodes for the rest.

    Every device needs more than its lease. In one rack after the other, all devices of one node exceed their limits:
    their next report shows the rack over its budget. Measured by one clock, from sending that report: to the first
    lower lease that another node of the rack receives; to the lease with which the rack fits its budget again, with the
    breaching node at its highest limits; to the first lower limit that an agent sets. Then the agents' devices become
    unreadable, and at last the controller is killed: time until their limits are at the floor. agents: at most one of
    each rack of eight nodes.
    """
    racks = nodes // power_speakers.NODES_PER_RACK
    if agents > racks or nodes % power_speakers.NODES_PER_RACK:
        problem = f"{agents} agents, {nodes} nodes"
        raise ConfigError(Mistake("agents, nodes", problem, "at most one agent a rack, whole racks of eight"))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            yield measured(Path(folder), racks, gpus, agents, rounds, seed)
