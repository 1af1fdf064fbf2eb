"""Objects and arrivals of the benchmark of an operator whose pods leave."""

from pathlib import Path

import pytest
import yaml

from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import snapshot_from
from simulator.openb.generator import generate, trace_of
from tests.builders.whole_gpu_pods import gpu_type_objects
from tests.controlplane.churned_pods import node_objects, pod_of

TRACE = trace_of(generate(20, mix="gpuspec33", seed=1), {})


@pytest.mark.parametrize("placer", ["gate", "bind"])
def test_the_objects_of_the_server_are_the_fleet_and_the_pods_of_the_trace(tmp_path: Path, placer: str) -> None:
    shapes = TRACE.pods.shapes
    pods = [pod_of(number, shape, placer) for number, shape in enumerate(shapes)]
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([*gpu_type_objects(TRACE.gpu_type_names), *node_objects(TRACE), *pods]))

    seen = snapshot_from(read_manifests([str(file)])).snapshot

    assert [each.lower() for each in TRACE.gpu_type_names] == list(seen.gpu_type_names)
    assert seen.nodes.gpus.tolist() == TRACE.nodes.gpus.tolist()
    assert seen.nodes.cpu_milli.tolist() == TRACE.nodes.cpu_milli.tolist()
    assert seen.nodes.memory_bytes.tolist() == TRACE.nodes.memory_bytes.tolist()
    for number, shape in enumerate(shapes):
        row = seen.pods.names.row(f"default/pod-{number:05d}")
        assert row is not None
        found = seen.pods.shapes[seen.pods.shape[row]]
        assert (found.gpus, found.gpu_milli, found.cpu_milli) == (shape.gpus, shape.gpu_milli, shape.cpu_milli)
        assert found.gpu_types == tuple(sorted(kind.lower() for kind in shape.gpu_types))
