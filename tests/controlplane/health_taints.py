"""Evidence of a broken node to its taint, on a real API server: percentiles over many.

    python -m benchmarks run health-taints

Three nodes under three switches break and are repaired in turn, beside an operator and the agents of twelve simulated
nodes. Counted from the instant at which a node's agent sends the evidence to the operator's word that the taint is set.
"""

import sys
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from simulator.controlplane.binaries import control_plane_programs, progress_on
from simulator.controlplane.commands import ControlPlaneSettings, Folder
from simulator.controlplane.server import down, up
from tests.controlplane.operators import until
from tests.controlplane.test_health import NODES, Stage, administrator, fleet_manifest, staged, xid


def taints_s(count: int) -> list[float]:
    """Seconds from evidence to taint of so many broken nodes, a multiple of 3."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with TemporaryDirectory(prefix="taints") as name, ExitStack() as stack:
        folder = Path(name)
        manifests = folder / "nodes.yaml"
        manifests.write_text(yaml.safe_dump_all(fleet_manifest()), encoding="utf-8")
        kept = Folder(folder / "server")
        server = up(kept, ControlPlaneSettings(manifests=str(manifests)), programs)
        stack.callback(lambda: down(kept))
        (folder / "operator").mkdir()
        stage = stack.enter_context(staged(administrator(server, programs), folder / "operator"))
        return [each for _ in range(count // 3) for each in _round(stage)]


def _round(stage: Stage) -> list[float]:
    stage.policy()
    took_s = []
    for node in NODES[::4]:
        known = len(stage.operator.lines)
        began_s = time.time()
        stage.agents.find(node, xid())
        until(lambda n=node, k=known: _tainted_s(stage, n, k) > 0, "the node is tainted", within_s=60)  # type: ignore[misc]
        took_s.append(_tainted_s(stage, node, known) - began_s)
    for node in NODES[::4]:
        stage.agents.find(node)
    until(lambda: not stage.taints(), "all nodes are back", within_s=120)
    until(lambda: not stage.open_incidents(), "the incidents are closed", within_s=60)
    return took_s


def _tainted_s(stage: Stage, node: str, known: int) -> float:
    """When the operator said, after so many lines, that it had tainted the node; 0 before."""
    done = (line for line in list(stage.operator.lines)[known:] if line.get("event") == "action done")
    found = next((line for line in done if line.get("node") == node), None)
    return datetime.fromisoformat(found["timestamp"]).timestamp() if found else 0.0
