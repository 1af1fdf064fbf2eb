"""Power loop of the controller in its own process, so that its CPU time and memory can be measured."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from time import monotonic

import click
import numpy as np

from benchmarks.power_reaction_fleet import table_of
from controller.loops.power.agent_server import AgentServer
from controller.loops.power.term import PowerTerm
from power.leases.mounted_keys import MountedKeys
from power.rules import PowerRules


@click.command()
@click.option("--keys", type=click.Path(path_type=Path), required=True)
@click.option("--racks", type=int, required=True)
@click.option("--gpus", type=int, required=True)
@click.option("--distrust", "distrust_s", type=float, required=True)
def main(keys: Path, racks: int, gpus: int, distrust_s: float) -> None:
    """Prints its port, prints its counts as JSON at SIGTERM, and runs until it is killed."""
    asyncio.run(_serve(keys, racks, gpus, PowerRules(distrust_s=distrust_s)))


async def _serve(keys: Path, racks: int, gpus: int, rules: PowerRules) -> None:
    watts = PowerTerm(lambda inventories: table_of(inventories, racks, gpus), epoch=1, rules=rules)
    server = AgentServer(lambda: watts, MountedKeys(keys, monotonic), monotonic)
    listening = await server.serve("127.0.0.1", 0)
    say(str(listening.sockets[0].getsockname()[1]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: say(json.dumps(counted(server))))
    await server.decide()


def counted(server: AgentServer) -> dict[str, object]:
    reaction_s = server.counts.reaction_s or [float("nan")]
    return {
        "lines": len(server.nodes),
        "reports": server.counts.reports,
        "leases": server.counts.leases,
        "refused": sum(server.counts.refused.values()),
        "answered_p50_s": round(float(np.percentile(reaction_s, 50)), 4),
        "answered_p99_s": round(float(np.percentile(reaction_s, 99)), 4),
    }


def say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
