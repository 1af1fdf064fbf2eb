"""Curve of a device: by its type's name as a whole word of the product's, else the fit."""

import pytest

from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN
from power.control.admission import speed_at

AT_HALF = {0.866: "V100", 0.762: "A40", 0.507: ""}
"""Types by their speed at half of the highest limit; the fit has no type."""


def type_of(product: str, phase: int = PHASE_COMPUTE_BOUND) -> str:
    return AT_HALF[speed_at(product, phase, 0.5)]


@pytest.mark.parametrize(
    ("product", "gpu_type"),
    [
        ("V100", "V100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-PCIE-32GB", "V100"),
        ("Tesla V100-DGXS-32GB", "V100"),
        ("A40", "A40"),
        ("NVIDIA A40", "A40"),
    ],
)
def test_a_product_has_the_curve_of_the_type_that_is_a_word_of_its_name(product: str, gpu_type: str) -> None:
    assert type_of(product) == gpu_type


@pytest.mark.parametrize(
    "product",
    [
        *("NVIDIA RTX A4000", "NVIDIA RTX A400", "Quadro GV100", "Tesla V100S-PCIE-32GB", "NVIDIA L40"),
        *("NVIDIA A40-8Q", "GRID V100-16Q", "A40-foo", "foo-A40", "NVIDIA A40-"),
        *("A100", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "", "  "),
    ],
)
def test_another_card_a_slice_of_one_and_what_nobody_measured_have_the_fit(product: str) -> None:
    assert type_of(product) == ""


def test_a_phase_of_a_known_product_that_nobody_measured_has_the_fit() -> None:
    assert speed_at("NVIDIA A40", PHASE_MEMORY_BOUND, 0.5) == 0.957


@pytest.mark.parametrize("phase", [PHASE_UNKNOWN, PHASE_IDLE])
def test_an_unknown_phase_counts_as_the_dearest(phase: int) -> None:
    assert type_of("NVIDIA A40", phase) == "A40"
