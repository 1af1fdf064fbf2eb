"""Generated fleets have the statistics of the published cluster."""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.workloads import PodShape
from simulator.openb.generator import GIB, MIXES, NODE_KINDS, generate
from tests.builders.openb_files import write_openb_csv


def kind_of(gpus: int, gpu_milli: int) -> str:
    if not gpus:
        return "cpu"
    return "fraction" if gpu_milli < 1000 else f"whole-{gpus}"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kinds_of(pods: tuple[PodShape, ...]) -> Counter[str]:
    return Counter(kind_of(pod.gpus, pod.gpu_milli) for pod in pods)


def test_1213_nodes_are_the_published_fleet() -> None:
    made = generate(1213, seed=5)

    assert Counter(made.nodes) == {kind: kind.count for kind in NODE_KINDS}
    assert made.gpus == 6212
    assert sum(node.cpu_cores for node in made.nodes) == 107_018


def test_a_smaller_fleet_keeps_the_composition() -> None:
    made = generate(300, seed=5)

    # 549 of 1,213 nodes are G2: 300 × 549 / 1213 = 135.8
    assert Counter(node.model for node in made.nodes)["G2"] in (135, 136)
    # 6,212 GPUs on 1,213 nodes are 5.12 a node, so about 1,536 on 300; every kind may round by one node of up to 8 GPUs
    assert made.gpus == pytest.approx(1536, rel=0.02)


@pytest.mark.parametrize("mix", MIXES)
def test_pod_kinds_appear_by_their_shares(mix: str) -> None:
    made = generate(1213, mix=mix, seed=3)

    counted, shares = kinds_of(made.pods), MIXES[mix].shares
    assert set(counted) == set(shares)
    for kind, share in shares.items():
        # Sampling is systematic: the classes of a kind lie together, so the kind rounds by a pod at each end at most.
        assert counted[kind] == pytest.approx(len(made.pods) * share / sum(shares.values()), abs=2)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("nodes", [40, 300, 1213])
def test_pods_ask_for_98_percent_of_the_gpus(mix: str, nodes: int) -> None:
    made = generate(nodes, mix=mix, seed=3)

    # Rounding moves each class by at most one pod; on 40 nodes (about 205 GPUs) one 8-GPU pod is 4 % of the fleet.
    tolerance = 0.06 if nodes == 40 else 0.01
    assert sum(pod.total_gpu_milli for pod in made.pods) / 1000 / made.gpus == pytest.approx(0.98, abs=tolerance)


def test_a_third_of_the_gpu_pods_of_gpuspec33_insists_on_models() -> None:
    pods = [pod for pod in generate(1213, mix="gpuspec33").pods if pod.gpus]

    # 2,388 of 7,064 GPU pods in the published list
    assert sum(bool(pod.gpu_types) for pod in pods) / len(pods) == pytest.approx(0.338, abs=0.01)


def test_nobody_insists_on_a_model_that_a_small_fleet_lacks() -> None:
    made = generate(5, mix="gpuspec33", seed=1)

    models = {node.model for node in made.nodes}
    assert {model for pod in made.pods for model in pod.gpu_types} <= models


def test_the_seed_decides_everything() -> None:
    assert generate(50, mix="gpuspec33", seed=7) == generate(50, mix="gpuspec33", seed=7)
    assert generate(50, mix="gpuspec33", seed=7) != generate(50, mix="gpuspec33", seed=8)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as wrong:
        generate(0, mix="nonsense")

    assert [mistake.place.rpartition(", ")[2] for mistake in wrong.value.mistakes] == ["nodes", "mix"]


def test_the_csv_has_the_columns_of_the_trace(tmp_path: Path) -> None:
    made = generate(20, mix="gpuspec33", seed=1)

    write_openb_csv(made, tmp_path / "nodes.csv", tmp_path / "pods.csv")

    nodes = rows_of(tmp_path / "nodes.csv")
    pods = rows_of(tmp_path / "pods.csv")
    assert [row["model"] for row in nodes] == [node.model for node in made.nodes]
    assert len({row["sn"] for row in nodes}) == 20
    assert [row["gpu_spec"] for row in pods] == ["|".join(pod.gpu_types) for pod in made.pods]
    assert [int(row["memory_mib"]) * 2**20 for row in pods] == [pod.memory_bytes for pod in made.pods]


@pytest.mark.data
@pytest.mark.parametrize("mix", MIXES)
def test_the_tables_agree_with_the_published_pod_lists(public_data: Path, mix: str) -> None:
    trace = rows_of(public_data / "openb" / f"openb_pod_list_{mix}.csv")
    made = generate(1213, mix=mix).pods

    published = Counter(kind_of(int(row["num_gpu"]), int(row["gpu_milli"])) for row in trace)
    for kind, count in published.items():
        assert kinds_of(made)[kind] / len(made) == pytest.approx(count / len(trace), abs=0.001)
    # The tables leave out rare sizes, so means may be off by a percent or two.
    assert mean(pod.cpu_milli for pod in made) == pytest.approx(mean(int(row["cpu_milli"]) for row in trace), rel=0.02)
    assert mean(pod.memory_bytes for pod in made) / GIB == pytest.approx(
        mean(int(row["memory_mib"]) for row in trace) / 1024, rel=0.02
    )
    assert mean(pod.total_gpu_milli for pod in made) == pytest.approx(
        mean(int(row["num_gpu"]) * int(row["gpu_milli"]) for row in trace), rel=0.01
    )


def mean(values: Iterable[int]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
