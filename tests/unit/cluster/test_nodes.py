"""Node requirements of a pod: operators of core/v1, and invalid operands."""

import pytest

from cluster.nodes import meets
from cluster.workloads import Requirement


@pytest.mark.parametrize(
    ("operator", "operand", "label", "met"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "-5", "-6", True),
        ("Lt", "5", None, False),
        ("Gt", "5", "six", False),
    ],
)
def test_gt_and_lt_compare_integers(operator: str, operand: str, label: str | None, *, met: bool) -> None:
    assert meets({} if label is None else {"x": label}, Requirement("x", operator, (operand,))) is met  # type: ignore[arg-type]


@pytest.mark.parametrize("operand", ["", "much", "1.5", " 5", "5_000", "٣", "1" * 5000])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_beyond_what_is_no_integer_no_node_is(operator: str, operand: str) -> None:
    """The API server takes such pods. One of them must not end the plans of all others."""
    assert not meets({"x": "7"}, Requirement("x", operator, (operand,)))  # type: ignore[arg-type]


def test_beyond_nothing_no_node_is() -> None:
    assert not meets({"x": "7"}, Requirement("x", "Gt", ()))
