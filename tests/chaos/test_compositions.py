"""Compositions of faults in memory, a fixed few of them; `make faults` plays others for hours."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.compositions import KEPT, Composition, composition_from, drawn, keep, shrunk
from tests.chaos.in_memory import DEEDS, played
from tests.chaos.judge import Listed, Wanted, violations
from tests.chaos.seeded_bugs import SeededBug, broken_sources, seeded_bugs
from tests.controlplane.manifests import GPU


@pytest.mark.parametrize("seeds", [range(first, 40, 4) for first in range(4)], ids=str)
def test_nothing_is_lost_doubled_or_untrue_under_any_composition_of_faults(seeds: range) -> None:
    wrong = {seed: found for seed in seeds if (found := played(drawn(seed)).violations)}

    assert not wrong


@pytest.mark.parametrize("file", sorted(KEPT.glob("*.json")), ids=lambda file: file.stem)
def test_a_history_that_failed_once_fails_no_more(file: Path) -> None:
    assert not played(composition_from(file.read_text(encoding="utf-8"))).violations


def test_a_composition_runs_the_same_each_time() -> None:
    first, again = played(drawn(3)), played(drawn(3))

    assert first == again
    assert first.digest != played(drawn(4)).digest


def test_every_word_of_a_composition_can_be_done() -> None:
    said = {step["do"] for seed in range(200) for step in drawn(seed).steps}

    assert said == set(DEEDS)


def test_a_composition_reads_back_as_it_was_written(tmp_path: Path) -> None:
    file = keep("it", drawn(5), ["double: n0 device 1"], tmp_path)

    assert composition_from(file.read_text(encoding="utf-8")) == drawn(5)
    assert f"--replay {file}" in file.read_text(encoding="utf-8")


def test_what_fails_shrinks_to_the_steps_that_it_takes() -> None:
    whole = drawn(7)
    needed = (whole.steps[2], whole.steps[5])

    def fails(each: Composition) -> bool:
        return all(step in each.steps for step in needed)

    small = shrunk(whole, fails)

    assert small.steps == needed
    assert not any(fails(replace(small, steps=steps)) for steps in itertools.combinations(small.steps, 1))


def test_the_judge_sees_two_pods_on_one_device_and_a_pod_that_waits_beside_free_ones() -> None:
    node = {"metadata": {"name": "a", "labels": {}}, "status": {"allocatable": {GPU: "4"}}}
    pods = [pod("one", "a", "0"), pod("two", "a", "0"), pod("three", "", "")]
    wanted = Wanted([f"t/{name}" for name in ("one", "two", "three", "four")], {}, {"t/five": "uid"}, "t")

    found = violations(Listed({"nodes": [node], "pods": pods}), wanted)

    assert found == [
        "lost: t/four",
        "double: a device 0: 2 pods",
        "stranger: t/five is gone, or ends",
        "waits for nothing: t/three asks for 1 and there is 2 on one node",
    ]


def pod(name: str, node: str, devices: str) -> dict[str, object]:
    container = {"resources": {"limits": {GPU: "1"}}}
    meta = {"name": name, "namespace": "t", "uid": name, "annotations": {"tonnage.dev/devices": devices}}
    return {"metadata": meta, "spec": {"containers": [container], "nodeName": node}, "status": {"phase": "Running"}}


@pytest.mark.parametrize("bug", seeded_bugs(), ids=lambda bug: bug.name)
def test_a_seeded_bug_still_has_its_place(bug: SeededBug) -> None:
    for file, source in broken_sources(bug).items():
        compile(source, file, "exec")
