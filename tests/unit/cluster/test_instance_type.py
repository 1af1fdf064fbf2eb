"""Instance types: their names, unique and readable, and back from a name."""

import pytest

from cluster.workloads import InstanceType, instance_type_named


@pytest.mark.parametrize(
    ("instance_type", "name"),
    [
        (InstanceType("a100"), "a100"),
        (InstanceType("a100", 4), "a100x4"),
        (InstanceType("a100", 4, spot=True), "a100x4-spot"),
        (InstanceType("a100", spot=True), "a100-spot"),
        (InstanceType("gb200-nvl72", 8), "gb200-nvl72x8"),
    ],
)
def test_an_instance_type_is_found_by_its_name(instance_type: InstanceType, name: str) -> None:
    assert instance_type.name == name
    assert instance_type_named(name, ("a100", "gb200-nvl72")) == instance_type


def test_a_gpu_type_with_the_name_of_a_width_is_a_gpu_type() -> None:
    assert instance_type_named("rtx4", ("rtx4",)) == InstanceType("rtx4")
    assert instance_type_named("rtx4x2", ("rtx4",)) == InstanceType("rtx4", 2)


def test_an_unknown_name_is_taken_for_a_gpu_type() -> None:
    assert instance_type_named("b300x8", ("a100",)) == InstanceType("b300x8")
