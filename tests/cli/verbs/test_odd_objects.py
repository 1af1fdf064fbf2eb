"""One odd object of a cluster costs itself alone: the rest of the dump is planned as without it."""

import pytest

from tests.builders.manifests import Object
from tests.builders.odd_objects import ODD, answer, good, judged, meta, node


@pytest.mark.parametrize("seed", range(40))
def test_an_odd_object_refuses_no_dump_and_changes_no_answer_about_the_others(seed: int) -> None:
    outcome, why = judged(seed, "plan")

    assert outcome == "same", why


def test_what_no_reading_can_understand_is_left_out() -> None:
    odd: list[Object] = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta(f"{ODD}-1", ODD), "spec": {"containers": "none"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": meta(f"{ODD}-2"), "status": {"allocatable": [1]}},
        {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": meta(f"{ODD}-3", ODD), "spec": 7},
        node("n0", 4),  # listed twice
    ]

    assert answer([*good(), *odd], "plan") == answer(good(), "plan")
