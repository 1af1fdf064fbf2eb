"""Status of a policy, Events and counts, from what nodes report."""

from dataclasses import replace

from controller.loops.isolation.coverage import Coverage, Covered
from controller.loops.isolation.loop import PolicyFacts, Seen, events_of, facts_of, happenings, status_after
from isolation.orders import IsolationReport, SandboxOrder, SandboxReport

ORDER = SandboxOrder("cri-o://a", "p/team-a")
COVERAGE = Coverage({"u": Covered("team-a/x", "u", "n1", "p", ORDER)})


def report(node: str = "n1", life: str = "l1", **happened: int) -> IsolationReport:
    counts = {name.replace("_", "/", 1): count for name, count in happened.items()}
    sandbox = SandboxReport(100, 200, running=2, queued=1, happened=counts)
    return IsolationReport(node, life, "full", "", sandboxes={"u": sandbox})


def after_both(first: IsolationReport, second: IsolationReport) -> list[tuple[str, str, int]]:
    """What happened between two reports."""
    _, seen = happenings(COVERAGE, {first.node: first}, Seen())
    found, _ = happenings(COVERAGE, {second.node: second}, seen)
    return [(each.what, each.reason, each.count) for each in found]


def test_what_happened_is_counted_once() -> None:
    first, second = report(ToolCallKilled_OUTGREW_CLAIM=2), report(ToolCallKilled_OUTGREW_CLAIM=5)

    assert after_both(first, second) == [("ToolCallKilled", "OUTGREW_CLAIM", 3)]
    assert after_both(second, second) == []


def test_a_new_leader_repeats_nothing() -> None:
    found, seen = happenings(COVERAGE, {}, Seen())  # before the first node was heard from
    late, _ = happenings(COVERAGE, {"n1": report(Frozen_WAITS_FOR_MEMORY=9)}, seen)

    assert found == late == ()


def test_after_a_restart_of_a_node_s_agent_counts_begin_again() -> None:
    _, seen = happenings(COVERAGE, {"n1": report(Frozen_WAITS_FOR_MEMORY=9)}, Seen())
    _, seen = happenings(COVERAGE, {"n1": report(life="l2")}, seen)

    assert [
        each.count for each in happenings(COVERAGE, {"n1": report(life="l2", Frozen_WAITS_FOR_MEMORY=1)}, seen)[0]
    ] == [1]


def test_what_happened_while_a_node_was_silent_is_not_lost() -> None:
    _, seen = happenings(COVERAGE, {"n1": report(Frozen_WAITS_FOR_MEMORY=1)}, Seen())
    _, seen = happenings(COVERAGE, {}, seen)

    found, _ = happenings(COVERAGE, {"n1": report(Frozen_WAITS_FOR_MEMORY=4)}, seen)
    assert [each.count for each in found] == [3]


def test_a_node_speaks_for_its_own_pods_and_in_known_words_only() -> None:
    assert after_both(report("n2"), report("n2", ToolCallKilled_OUTGREW_CLAIM=1)) == []
    assert after_both(report(), report(Invented_OUTGREW_CLAIM=1, ToolCallKilled_INVENTED=1)) == []


def test_what_a_node_invents_is_not_remembered() -> None:
    """Each word and session of each report was kept while the pod ran: a megabyte a second, of one node."""
    seen = Seen()
    for number in range(5):
        invented = {f"Invented{number}_OUTGREW_CLAIM": 1, "Frozen_WAITS_FOR_MEMORY": number}
        _, seen = happenings(COVERAGE, {"n1": report(life=f"l{number}", **invented)}, seen)

    assert seen == Seen({("l4", "u", "Frozen/WAITS_FOR_MEMORY"): 4}, {"n1": "l4"})


def test_a_kill_is_a_warning_about_the_pod_with_advice() -> None:
    _, seen = happenings(COVERAGE, {"n1": report()}, Seen())
    found, _ = happenings(COVERAGE, {"n1": report(ToolCallKilled_OUTGREW_CLAIM=2)}, seen)

    (event,) = events_of(found)
    assert (event.kind, event.name, event.event, event.is_warning) == ("Pod", "team-a/x", "ToolCallKilled", True)
    assert event.note == (
        "OUTGREW_CLAIM: 2 times: a tool call was killed (OUTGREW_CLAIM); declare more memory, or split the work"
    )


def test_pods_that_are_not_under_control_are_named_with_the_reason() -> None:
    full = report()
    cases = {
        "no node agent with isolation reports from its node": {},
        "its node allows isolation at level none: cgroup v1": {"n1": replace(full, level="none", why="cgroup v1")},
        "its node has not taken it over yet": {"n1": replace(full, sandboxes={})},
        "its folder is blocked": {"n1": replace(full, sandboxes={"u": SandboxReport(trouble="its folder is blocked")})},
    }
    for words, reports in cases.items():
        (trouble,) = facts_of("p", COVERAGE, reports).troubles
        assert (trouble.pod, trouble.node, trouble.message) == ("team-a/x", "n1", words)


def test_an_unchanged_status_is_not_written_again() -> None:
    facts = facts_of("p", COVERAGE, {"n1": report()})
    status = status_after({}, 1, (), facts, 100.0)

    assert {each["type"]: each["status"] for each in status["conditions"]} == {"Accepted": "True", "Ready": "True"}
    assert (status["selected"], status["controlled"], status["running"], status["queued"]) == (1, 1, 2, 1)
    assert status_after(status, 1, (), facts, 200.0) == status
    assert status_after(status, 1, (), PolicyFacts(), 200.0)["conditions"][1]["reason"] == "NoPods"
