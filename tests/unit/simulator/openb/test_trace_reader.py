"""Reader of traces as published, with all mistakes reported at once."""

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.workloads import PodShape
from placement.policies.fgd import typical_pods
from simulator.openb.trace_reader import read_trace

GIB = 2**30
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn2,64000,262144,2,P100\nn1,96000,393216,8,G2\nn3,32000,1024,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np1,12000,16384,1,1000,,LS\n"


def written(folder: Path, nodes: str = NODES, pods: str = PODS) -> tuple[Path, Path]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return folder / "nodes.csv", folder / "pods.csv"


def mistakes(folder: Path, nodes: str = NODES, pods: str = PODS) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_trace(*written(folder, nodes, pods))
    return [str(mistake) for mistake in caught.value.mistakes]


def test_a_fleet_is_sorted_by_name_and_its_units_are_ours(tmp_path: Path) -> None:
    trace = read_trace(*written(tmp_path), prices={"G2": 1.5})

    assert list(trace.nodes.names) == ["n1", "n2", "n3"]
    assert trace.nodes.cpu_milli.tolist() == [96_000, 64_000, 32_000]
    assert trace.nodes.memory_bytes.tolist() == [384 * GIB, 256 * GIB, GIB]
    assert trace.nodes.gpus.tolist() == [8, 2, 0]
    assert trace.nodes.gpu_type.tolist() == [0, 1, -1]
    assert [(kind.name, kind.price_per_hour) for kind in trace.gpu_types] == [("G2", 1.5), ("P100", 0.0)]


def test_pods_keep_their_order_and_pods_that_ask_the_same_share_a_shape(tmp_path: Path) -> None:
    pods = PODS + "p2,500,1024,0,0,,BE\np3,12000,16384,1,1000,,LS\np4,1000,1024,1,250,P100|G2,LS\n"

    trace = read_trace(*written(tmp_path, pods=pods))

    whole = PodShape(cpu_milli=12_000, memory_bytes=16 * GIB, gpus=1, gpu_milli=1000)
    shared = PodShape(cpu_milli=1000, memory_bytes=GIB, gpus=1, gpu_milli=250, gpu_types=("G2", "P100"))
    assert trace.pods.shapes == (whole, PodShape(cpu_milli=500, memory_bytes=GIB), shared)
    assert trace.pods.shape.tolist() == [0, 1, 0, 2]
    assert trace.pods.pending.tolist() == [0, 1, 2, 3]


def test_a_trace_without_gpu_spec_lets_every_pod_run_on_every_type(tmp_path: Path) -> None:
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,12000,16384,2,1000\n"

    trace = read_trace(*written(tmp_path, pods=pods))

    assert trace.pods.shapes[0].gpu_types == ()


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    found = mistakes(tmp_path, NODES.replace(",memory_mib", ",memory"), PODS.replace("gpu_milli", "milli"))

    assert found == [
        "nodes.csv, line 1, column memory_mib: is missing; add it",
        "pods.csv, line 1, column gpu_milli: is missing; add it",
    ]


def test_every_mistake_of_both_files_is_reported_with_its_line_and_column(tmp_path: Path) -> None:
    nodes = NODES + "n1,1,1,1,G2\nn4,much,1,1,G2\nn5,-1,1,1,G2\nn6,1,1,99,G2\nn7,1,1,2,\nn8,1\n,1,1,1,G2\n"
    pods = PODS + "p2,nan,1,1,1000,,LS\np3,1,1,1,1500,,LS\np4,1,1,1,0,,LS\np5,1,1,1,1000,H100,LS\np6,1.5,1,0,0,,LS\n"

    assert mistakes(tmp_path, nodes, pods) == [
        "nodes.csv, line 5, column sn: 'n1' occurs twice (first on line 3); rename one of them",
        "nodes.csv, line 10, column memory_mib: is missing: the line is too short",
        "nodes.csv, line 10, column gpu: is missing: the line is too short",
        "nodes.csv, line 10, column model: is missing: the line is too short",
        "nodes.csv, line 11, column sn: is empty; give every line a name",
        "nodes.csv, line 6, column cpu_milli: 'much' is not a whole number",
        "nodes.csv, line 7, column cpu_milli: -1 is negative",
        "nodes.csv, line 8, column gpu: 99 is more than 16",
        "nodes.csv, line 9, column model: is empty, but the node has 2 GPUs; name their type",
        "pods.csv, line 3, column cpu_milli: 'nan' is not a whole number",
        "pods.csv, line 4, column gpu_milli: 1500 is more than 1000",
        "pods.csv, line 5, column gpu_milli: is 0, but the pod requests 1 GPUs; 1000 is a whole GPU",
        "pods.csv, line 6, column gpu_spec: no node has a GPU of type 'H100'; correct it or add such nodes",
        "pods.csv, line 7, column cpu_milli: '1.5' is not a whole number",
    ]


def test_an_empty_fleet_is_refused(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\n") == [
        "nodes.csv: the fleet is empty; give at least one node"
    ]


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "pods.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")

    with pytest.raises(ConfigError) as caught:
        read_trace(tmp_path / "none.csv", binary)

    assert [m.problem for m in caught.value.mistakes] == [
        "cannot be read (No such file or directory)",
        "is not a text file",
    ]


@pytest.mark.data
@pytest.mark.parametrize(
    ("variant", "pods", "gpu_milli", "classes"),
    # The default trace asks 6,086.8 GPUs; classes as the published simulator counts them (95 % of the pods).
    [("default", 8152, 6_086_800, 35), ("gpuspec33", 8152, 6_086_800, 127), ("gpushare100", 8152, None, 21)],
)
def test_the_published_traces_are_read_as_published(
    public_data: Path, variant: str, pods: int, gpu_milli: int | None, classes: int
) -> None:
    folder = public_data / "openb"
    trace = read_trace(folder / "openb_node_list_gpu_node.csv", folder / f"openb_pod_list_{variant}.csv")

    shapes = [trace.pods.shapes[index] for index in trace.pods.shape]
    assert (len(trace.nodes), int(trace.nodes.gpus.sum()), int(trace.nodes.cpu_milli.sum())) == (
        1213,
        6212,
        107_018_000,
    )
    assert len(shapes) == pods
    assert gpu_milli in (None, sum(shape.total_gpu_milli for shape in shapes))
    assert len(typical_pods(shapes).classes) == classes
