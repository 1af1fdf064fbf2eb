"""Objects and arrivals of the benchmark of an operator whose pods leave."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.binding_pods import gpu_type_objects
from benchmarks.operator.churn import node_objects, pod_of, stream_of
from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import snapshot_from
from simulator.openb.generator import generate, trace_of

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


def test_the_pods_that_run_at_a_time_request_the_load() -> None:
    stream = stream_of(TRACE, load=0.5, mean_stays=40.0, seed=1)
    gpus = np.array([shape.total_gpu_milli for shape in TRACE.pods.shapes])[stream.pods] / 1000
    arrives = np.arange(len(stream.pods))

    requested = [float(gpus[(arrives <= at) & (arrives + stream.stay > at)].sum()) for at in arrives[stream.first :]]

    assert np.mean(requested) == pytest.approx(0.5 * TRACE.nodes.gpus.sum(), rel=0.1)


def test_no_pod_leaves_before_the_fleet_is_filled() -> None:
    stream = stream_of(TRACE, load=0.5, mean_stays=1.0, seed=1)

    assert ((np.arange(len(stream.pods)) + stream.stay)[: stream.first] >= stream.first).all()
