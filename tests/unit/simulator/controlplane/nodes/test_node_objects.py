"""Node objects of simulated fleets."""

from collections import Counter
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from simulator.controlplane.nodes.node_objects import PRODUCT, RACK, SIMULATED, generated_nodes, nodes_in
from simulator.openb.generator import generate

EXAMPLES = Path(__file__).parents[5] / "examples" / "nodes.yaml"
GPU = "nvidia.com/gpu"


def test_a_generated_fleet_has_the_gpus_of_its_kinds() -> None:
    nodes, fleet = generated_nodes(100, seed=3), generate(100, seed=3)

    assert sum(int(node["status"]["allocatable"][GPU]) for node in nodes) == fleet.gpus
    assert Counter(n["metadata"]["labels"][PRODUCT] for n in nodes) == Counter(kind.model for kind in fleet.nodes)


def test_sixteen_nodes_share_a_rack() -> None:
    racks = Counter(node["metadata"]["labels"][RACK] for node in generated_nodes(40, seed=0))

    assert racks == {"rack-000": 16, "rack-001": 16, "rack-002": 8}


def test_manifests_keep_their_labels_taints_and_gpus() -> None:
    nodes = {node["metadata"]["name"]: node for node in nodes_in(EXAMPLES)}

    assert len(nodes) == 22
    spot = nodes["l4-5"]
    assert spot["metadata"]["labels"][PRODUCT] == "NVIDIA-L4"
    assert spot["metadata"]["labels"][SIMULATED] == "true"
    assert spot["spec"]["taints"][0]["key"] == "example.com/spot"
    assert spot["status"]["allocatable"] == {"pods": "110", "cpu": "96", "memory": "384Gi", GPU: "4"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod", "has no manifest of kind Node"),
        ("kind: Node\nmetadata: {name: a}", "document 1 .*: has no metadata.name or no status.allocatable"),
        ("kind: [", "is not YAML"),
    ],
)
def test_a_file_without_usable_nodes_is_named(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=problem):
        nodes_in(tmp_path / "nodes.yaml")
