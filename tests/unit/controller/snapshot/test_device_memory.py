"""Device memory that a pod states: the types that have it, and plans beside an exact model."""

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster.actions import Bind
from controller.api.notation import quantity
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from tests.builders.manifests import Object, gpu_type, node, observed, pod
from tests.unit.controller.snapshot.test_from_manifests import MILLI, mistakes, shape_of

MEMORY = "tonnage.dev/gpu-memory"
TYPES = {"small": "16Gi", "medium": "40Gi", "large": "80Gi"}


def types() -> list[Object]:
    return [gpu_type(name, memory=memory) for name, memory in TYPES.items()]


@pytest.mark.parametrize(
    ("asked", "memory", "on"),
    [
        ({"gpus": 1}, "16Gi", ("large", "medium", "small")),
        ({"gpus": 1}, "16385Mi", ("large", "medium")),
        ({"gpus": 2}, "41Gi", ("large",)),
        ({"annotations": {MILLI: "500"}}, "20Gi", ("large", "medium")),
        ({"annotations": {MILLI: "499"}}, "20Gi", ("large",)),
    ],
)
def test_a_pod_may_run_on_types_whose_device_or_part_has_the_memory_that_it_states(
    tmp_path: Path, asked: dict[str, Any], memory: str, on: tuple[str, ...]
) -> None:
    annotations = {**asked.get("annotations", {}), MEMORY: memory}

    shape = shape_of(tmp_path, *types(), node(), pod(**{**asked, "annotations": annotations}))

    assert shape.gpu_types == on


@pytest.mark.parametrize(
    ("asked", "memory", "says"),
    [
        ({"gpus": 1}, "81Gi", "is 81Gi, but no GPUType that it may run on has so much memory in a device"),
        ({"annotations": {MILLI: "100"}}, "9Gi", "so much memory in 100 thousandths of a device"),
        ({}, "9Gi", "it requests no device"),
        ({"gpus": 1}, "much", "not 'much'"),
    ],
)
def test_memory_that_no_type_has_is_told(tmp_path: Path, asked: dict[str, Any], memory: str, says: str) -> None:
    annotations = {**asked.get("annotations", {}), MEMORY: memory}

    (found,) = mistakes(tmp_path, *types(), node(), pod(**{**asked, "annotations": annotations}))

    assert MEMORY in found
    assert says in found


def test_a_slice_has_its_own_memory_and_not_that_of_the_largest_beside_it(tmp_path: Path) -> None:
    """Both slices are offered by nodes of one label, as MIG's strategy `mixed` does."""
    slices = [
        gpu_type(f"mig-{n}g", product="A100", resourceName=f"nvidia.com/mig-{n}g.{gb}gb", memory=f"{gb}Gi", share=n / 7)
        for n, gb in ((1, 10), (3, 40))
    ]
    asks = pod(annotations={MEMORY: "20Gi"})
    asks["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/mig-1g.10gb": 1}

    (found,) = mistakes(tmp_path, *slices, node(gpus=0), asks)

    assert "so much memory in a device" in found


def most_placed(free: list[int], wanted: list[int]) -> int:
    """Most pods of one GPU that GPUs with these memories can serve: all assignments of the model are tried."""
    choices = [[None, *(n for n, has in enumerate(free) if has >= least)] for least in wanted]
    counts = ([n for n in chosen if n is not None] for chosen in product(*choices))
    return max(len(used) for used in counts if len(used) == len(set(used)))


@pytest.mark.parametrize("seed", range(12))
def test_as_many_pods_are_placed_as_an_exact_model_places_and_each_where_its_memory_is(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - seeded on purpose
    kinds = {f"n{n}": random.choice(list(TYPES)) for n in range(4)}
    memories = {f"p{n}": random.choice(["10Gi", "16Gi", "30Gi", "40Gi", "60Gi"]) for n in range(5)}
    nodes = [node(name, gpus=1, product=kind.upper()) for name, kind in kinds.items()]
    pods = [pod(name, 1, annotations={MEMORY: memory}) for name, memory in memories.items()]

    now = observed(tmp_path, *types(), *nodes, *pods).snapshot
    plan = decide(now, Decisions(), deadline_s=60.0, clock=lambda: 0.0)
    binds = [action for action in plan.actions if isinstance(action, Bind)]

    for bind in binds:
        least, has = memories[bind.pod.partition("/")[2]], TYPES[kinds[bind.node]]
        assert quantity(least) <= quantity(has), (bind, least, has)
    free = [int(quantity(TYPES[kind])) for kind in kinds.values()]
    assert len(binds) == most_placed(free, [int(quantity(each)) for each in memories.values()])
