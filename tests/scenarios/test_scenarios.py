"""Every file of this folder: a cluster, and what is decided for it by the operator's pipeline and guard."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from msgspec import ValidationError

from cli.printing.plan_figures import named
from cli.verbs.bundle import brain_with
from cluster.actions import Bind, Evict, Move, Scale
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.inline import limits_from
from controller.cycle import stopped
from controller.guard import guard
from controller.objects.manifests import read_manifests
from controller.recording.bundle import settings_from
from controller.snapshot.from_manifests import snapshot_from
from tests.scenarios.vocabulary import Expected, Given, NodeWords, PodWords, manifests_of, qualified, scenario_in

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
AT_S = 1_000_000.0
"""Instant of every scenario; far enough from 0 for what happened before it."""
DEADLINE_S = 60.0


@pytest.mark.parametrize("file", sorted(HERE.glob("*.yaml")), ids=lambda file: file.stem)
def test_scenario(file: Path, tmp_path: Path) -> None:
    scenario = scenario_in(file)
    snapshot = seen(scenario.given, tmp_path)
    plan = decided(scenario.given, snapshot)
    print(*(f"{step.action}: {step.reason.words}" for step in plan.steps()), *plan.unplaced, *plan.refused, sep="\n")  # noqa: T201 - pytest shows it where a scenario fails

    broken = [f"{wrong}, but: {each.because}" for each in scenario.expect for wrong in misses(each, snapshot, plan)]

    assert not broken, "\n".join([scenario.rule, *broken])


def seen(given: Given, folder: Path) -> Snapshot:
    """The cluster of a scenario, read as any manifests are."""
    objects = folder / "given.json"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests_of(given)}), encoding="utf-8")
    files = [str(ROOT / name) for name in given.files]
    snapshot = snapshot_from(read_manifests([*files, str(objects)]), at_s=AT_S).snapshot
    # Rules of scaling need no template of a pod to be stated: the operator runs the instances.
    services = tuple(replace(each, is_planned_only=False) for each in snapshot.services)
    return replace(snapshot, services=services, half_started_since_s=_instants(given.half_started_s_ago))


def _instants(ago_s: dict[str, float]) -> dict[str, float]:
    return {qualified(name): AT_S - seconds for name, seconds in ago_s.items()}


def decided(given: Given, snapshot: Snapshot) -> Plan:
    """The guarded plan."""
    settings, unknown = settings_from(given.settings)
    assert unknown == (), "settings that do not exist"
    plan = brain_with(settings, stopped).plan(snapshot, DEADLINE_S)
    return guard(snapshot, plan, limits_from(settings))


def misses(expected: Expected, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """What is not as expected."""
    starts = {a.pod: a.node for a in plan.actions if isinstance(a, Bind | Move)}
    for pattern, wanted in expected.placed.items():
        yield from _misplaced(pattern, [wanted] if isinstance(wanted, str) else wanted, snapshot, starts)
    for label, patterns in expected.together.items():
        pods = [pod for pattern in patterns for pod in _named(pattern, snapshot)]
        values = {_label(snapshot, starts[pod], label) if pod in starts else None for pod in pods}
        if None in values or len(values) != 1:
            yield f"{', '.join(pods)} are on {label} {sorted(map(str, values))}"
    unplaced = {each.workload: each.reason.code for each in plan.unplaced}
    yield from _differ("unplaced", {_workload(key): code for key, code in expected.unplaced.items()}, unplaced)
    planned = {each.service: named(each.instances) for each in plan.services if each.refusal is None}
    yield from _differ("planned", _by_name(expected.planned), planned)
    scaled = {a.service: named(a.instances) for a in plan.actions if isinstance(a, Scale)}
    yield from _differ("scaled", _by_name(expected.scaled), scaled)
    unserved = {each.service: each.refusal.code for each in plan.services if each.refusal is not None}
    yield from _differ("unserved", _by_name(expected.unserved), unserved)
    refused = {_subject(each.step.action): each.reason.code for each in plan.refused}
    yield from _differ("refused", _by_name(expected.refused), refused)
    evicted = {a.pod for a in plan.actions if isinstance(a, Evict)}
    if expected.evicted is not None and evicted != set(map(qualified, expected.evicted)):
        yield f"evicted are {sorted(evicted)}"
    if expected.actions is not None and len(plan.actions) != expected.actions:
        yield f"there are {len(plan.actions)} actions"


def _misplaced(pattern: str, wanted: list[str], snapshot: Snapshot, starts: dict[str, str]) -> Iterator[str]:
    for pod in _named(pattern, snapshot):
        node = starts.get(pod)
        if node is None or not {node, _type(snapshot, node)} & set(wanted):
            yield f"{pod} goes to {node}"


def _named(pattern: str, snapshot: Snapshot) -> list[str]:
    found = [name for name in snapshot.pods.names if fnmatchcase(name, qualified(pattern))]
    assert found, f"no pod is called {pattern}"
    return found


def _differ(what: str, expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for name, wanted in expected.items():
        if found.get(name) != wanted:
            yield f"{what} of {name} is {found.get(name)}"


def _by_name(words: dict[str, Any]) -> dict[str, Any]:
    return {qualified(name): value for name, value in words.items()}


def _workload(words: str) -> str:
    kind, _, name = words.partition("/")
    return f"{kind}/{qualified(name)}"


def _subject(action: Any) -> str:
    return str(action.service if isinstance(action, Scale) else action.pod)


def _type(snapshot: Snapshot, node: str) -> str:
    row = snapshot.nodes.names.row(node)
    number = -1 if row is None else int(snapshot.nodes.gpu_type[row])
    return snapshot.gpu_type_names[number] if number >= 0 else ""


def _label(snapshot: Snapshot, node: str, label: str) -> str | None:
    row = snapshot.nodes.names.row(node)
    return None if row is None else snapshot.nodes.labels[row].get(label)


WRONG = {
    "because": "it is the only node",
    "placed": {"small": "b"},
    "unplaced": {"Pod/small": "NoNodeFits"},
    "evicted": ["small"],
    "scaled": {"chat": {"a100": 1}},
    "planned": {"chat": {"a100": 1}},
    "unserved": {"chat": "NoProfile"},
    "refused": {"small": "NotFound"},
    "together": {"rack": ["small"]},
    "actions": 7,
}
"""Expectations of a pod that starts on the only node; each is wrong."""


@pytest.mark.parametrize("word", sorted(WRONG.keys() - {"because"}))
def test_an_expectation_that_is_not_met_is_noticed(word: str, tmp_path: Path) -> None:
    given = Given(nodes=[NodeWords("a", type="a100", gpus=1)], pods=[PodWords("small", gpus=1)])
    snapshot = seen(given, tmp_path)

    assert list(misses(Expected(because="", **{word: WRONG[word]}), snapshot, decided(given, snapshot)))


def test_a_word_that_does_not_exist_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("rule: x\ngiven: {nodes: [{name: a, gpu: 8}]}\nexpect: []\n", encoding="utf-8")

    with pytest.raises(ValidationError, match="unknown field `gpu`"):
        scenario_in(file)
