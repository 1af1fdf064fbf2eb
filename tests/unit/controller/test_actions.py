"""A new action has three places: its class, the guard's rule for it, and its handler in Kubernetes. None is silent."""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from structlog.testing import capture_logs

import cluster.actions
from cli.inputs.planning import Planned
from cli.printing.differences import document as diff_document, plan_lines, summary
from cli.printing.plan_output import document, tables
from cluster.actions import ACTIONS, Action
from cluster.errors import ActionError
from cluster.frame import FrameError
from cluster.occupancy import Occupancy
from cluster.plans import Finding, Phase, Plan, Reason, Step
from cluster.snapshot import Draft, Snapshot
from controller.brain.frames import plan_frame, plan_from_frame
from controller.cycle import Cycle, carry_out
from controller.guard import OBJECTIONS, Guarded, Limits, Objection, guard
from controller.kube.sender import Write
from controller.kube_world.world import HANDLERS, Handler, WriteContext
from controller.ports import Outcome
from controller.queries.plan_diff import plan_diff
from controller.report.events import EventSeries, decisions_of, event_write
from controller.report.logs import log_cycle
from controller.settings import OperatorSettings
from simulator.world import SimulatedWorld
from tests.builders.fleet import node, pod, world
from tests.unit.controller.kube.fake_cluster_view import fake_view, kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter


@dataclass(frozen=True, slots=True)
class Cordon(Action):
    """Close a node to new pods. Place 1: the class."""

    node: str

    attempt: ClassVar[str] = "Cordoning"
    done: ClassVar[str] = "Cordoned"
    section: ClassVar[str] = "cordons"
    columns: ClassVar[tuple[str, ...]] = ("CORDONED",)

    @property
    def subject(self) -> str:
        return f"Node/{self.node}"

    @property
    def sentence(self) -> str:
        return "closed to new pods"

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.node,)

    def after(self, draft: Draft) -> None:
        draft.rewrite(closed(draft.now(), self.node))


def closed(snapshot: Snapshot, name: str) -> Snapshot:
    is_it = np.array([each == name for each in snapshot.nodes.names])
    return replace(snapshot, nodes=replace(snapshot.nodes, schedulable=snapshot.nodes.schedulable & ~is_it))


def objection_to_cordon(guarded: Guarded, action: Cordon) -> Reason | None:
    known = guarded.snapshot.nodes.names.row(action.node) is not None
    return None if known else Reason("NotFound", f"there is no such node as {action.node}")


class CordonHandler(Handler):
    def check(self, seats: Occupancy, action: Cordon) -> None:
        """A node can always be closed."""

    def writes(self, context: WriteContext, action: Cordon, snapshot: Snapshot) -> list[Write]:
        body = {"spec": {"unschedulable": True}, "epoch": context.term.epoch()}
        return [Write("PATCH", f"/api/v1/nodes/{action.node}", body)]


RULES: Mapping[type[Action], Objection] = {**OBJECTIONS, Cordon: objection_to_cordon}
"""Place 2."""
IN_KUBERNETES: Mapping[type[Action], Handler] = {**HANDLERS, Cordon: CordonHandler()}
"""Place 3."""

WITH_TOY = (*ACTIONS, Cordon)
WHY = Reason("XidStorm", "it reports errors")
STEP = Step(Cordon("a"), WHY)
PLAN = Plan(phases=(Phase("cordon", (STEP,)),))
DONE = Outcome((STEP,))


def fleet() -> Snapshot:
    return world([node("a", gpus=1), node("b", gpus=1)], [pod("ns/p", gpus=1)])


def without_entry(kinds: tuple[type[Action], ...], registry: Mapping[type[Action], Any]) -> set[str]:
    return {kind.__name__ for kind in kinds} - {kind.__name__ for kind in registry}


@pytest.mark.parametrize(
    ("kinds", "rules", "handlers"), [(ACTIONS, OBJECTIONS, HANDLERS), (WITH_TOY, RULES, IN_KUBERNETES)]
)
def test_every_action_has_a_rule_of_the_guard_and_a_handler_in_kubernetes(
    kinds: tuple[type[Action], ...], rules: Mapping[type[Action], Objection], handlers: Mapping[type[Action], Handler]
) -> None:
    assert without_entry(kinds, rules) == set()
    assert without_entry(kinds, handlers) == set()


def test_an_action_without_an_entry_is_found_missing() -> None:
    assert without_entry(WITH_TOY, OBJECTIONS) == {"Cordon"}
    assert without_entry(WITH_TOY, HANDLERS) == {"Cordon"}


def test_every_class_of_action_is_in_the_list_of_actions() -> None:
    classes = {kind for _, kind in inspect.getmembers(cluster.actions, inspect.isclass) if issubclass(kind, Action)}

    assert {kind for kind in classes if not inspect.isabstract(kind)} == set(ACTIONS)


def test_no_two_actions_share_a_name_or_a_section() -> None:
    for names in ([kind.__name__ for kind in WITH_TOY], [kind.section for kind in WITH_TOY]):
        assert len(set(names)) == len(names)


def test_a_new_action_passes_the_guard_and_is_written_to_kubernetes() -> None:
    writer = FakeWriter()
    kube = kubernetes(fake_view(fleet()), writer, handlers=IN_KUBERNETES)

    outcome = carry_out(kube, guard(kube.observe(), PLAN, Limits(), RULES))

    assert outcome == DONE
    (write,) = writer.sent
    assert (write.method, write.path) == ("PATCH", "/api/v1/nodes/a")


def test_the_guards_rule_of_a_new_action_is_asked() -> None:
    ghost = Plan(phases=(Phase("cordon", (Step(Cordon("ghost"), WHY),)),))

    (refused,) = guard(fleet(), ghost, Limits(), RULES).refused

    assert refused.reason.code == "NotFound"


def test_steps_after_a_new_action_are_judged_by_what_it_leaves() -> None:
    bind = Step(cluster.actions.Bind("ns/p", "a", (0,)), WHY)

    checked = guard(fleet(), Plan(phases=(*PLAN.phases, Phase("start", (bind,)))), Limits(), RULES)

    assert [(each.step, each.reason.code) for each in checked.refused] == [(bind, "NotEligible")]


def test_an_action_that_the_guard_has_no_rule_for_is_struck_out() -> None:
    (refused,) = guard(fleet(), PLAN, Limits()).refused

    assert (refused.step, refused.reason.code) == (STEP, "UnknownAction")


def test_an_action_that_kubernetes_has_no_handler_for_is_refused_before_anything_is_written() -> None:
    writer = FakeWriter()

    (answer,) = kubernetes(fake_view(fleet()), writer).apply([Cordon("a")])

    assert isinstance(answer, ActionError)
    assert "Cordon of Node/a" in str(answer)
    assert writer.sent == []


def test_a_simulated_world_obeys_a_new_action() -> None:
    there = SimulatedWorld(fleet())

    assert carry_out(there, PLAN) == DONE
    assert there.observe().nodes.schedulable.tolist() == [False, True]


def test_a_new_action_has_an_event_about_its_subject() -> None:
    (said,) = decisions_of(PLAN, DONE)
    body = event_write(EventSeries(said, "a", 0.0, 0.0), 1, "me").body

    assert body is not None
    assert (body["action"], body["reason"]) == ("Cordoning", "Cordoned")
    assert body["note"] == "closed to new pods; XidStorm: it reports errors"
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "a"}


def test_a_new_action_has_a_line_in_the_log() -> None:
    import structlog

    with capture_logs() as lines:
        log_cycle(structlog.get_logger(), 1, Cycle(fleet(), PLAN, DONE))

    assert lines[0] == {
        "event": "action done", "log_level": "info", "cycle": 1, "action": "Cordon", "node": "a", "reason": "XidStorm",
    }  # fmt: skip


def test_a_new_action_is_printed_in_the_plan() -> None:
    made = Planned(fleet(), PLAN, OperatorSettings())
    data = document(made)

    assert [(each["node"], each["reason"]["code"]) for each in data["cordons"]] == [("a", "XidStorm")]
    assert json.dumps(data)
    assert any("CORDONED" in part and "it reports errors" in part for part in tables(made))


def test_a_refused_new_action_is_printed_with_its_name() -> None:
    made = Planned(fleet(), guard(fleet(), PLAN, Limits()), OperatorSettings())

    assert [each["action"] for each in document(made)["refused"]] == ["Cordon"]
    assert any("Cordon a" in part for part in tables(made))


def test_a_new_action_is_a_difference() -> None:
    diff = plan_diff(fleet(), PLAN)

    assert not diff.is_empty
    assert "~ Node/a: closed to new pods: it reports errors" in list(plan_lines(diff))
    assert [each["subject"] for each in diff_document(diff)["others"]] == ["Node/a"]
    assert "1 other changes; 0 unplaced" in summary(diff)


def test_a_new_action_crosses_to_another_process_that_knows_it() -> None:
    assert plan_from_frame(plan_frame(PLAN), WITH_TOY) == PLAN
    with pytest.raises(FrameError, match="Cordon"):
        plan_from_frame(plan_frame(PLAN))


def test_what_a_failed_action_touched_is_left_alone() -> None:
    assert STEP.action.touches() == {"Node/a"}


def findings() -> Iterator[Finding]:
    yield Finding("Node/a", Reason("Degrading", "corrected memory errors double each day", {"errors": 64.0}))
    yield Finding("ModelService/ns/chat", Reason("QueueGrows", "output tokens wait 4 s longer each minute"))


def test_findings_of_several_deciders_are_joined_printed_and_carried() -> None:
    node_found, service_found = findings()
    plan = Plan(findings=(node_found,)).joined(Plan(findings=(service_found,)))
    made = Planned(fleet(), plan, OperatorSettings())

    assert plan.findings == (node_found, service_found)
    assert plan_from_frame(plan_frame(plan)) == plan
    assert [(each["about"], each["reason"]["figures"]) for each in document(made)["findings"]] == [
        ("Node/a", {"errors": 64.0}),
        ("ModelService/ns/chat", {}),
    ]
    assert any("Node/a" in part and "double each day" in part for part in tables(made))
    assert guard(fleet(), plan, Limits()).findings == plan.findings
