"""Rules of remediation, each by itself: in the whole decision one often stands behind another."""

from dataclasses import replace

from health.remediation.breakers import places
from health.remediation.decision import job_intents, node_intents
from health.remediation.facts import NodeKey, Origin, OurTaint, is_relevant
from health.remediation.folding import folded, with_taint
from health.remediation.incidents import Incident, IncidentPhase, Remedy
from health.remediation.lifecycle import Around
from health.verdicts.verdict import Syndrome
from tests.builders.remedies import START_S, PretendFleet, evidence, fleet, node, slow

AT_S = START_S + 100.0


def acting(world: PretendFleet) -> Incident:
    """The incident of a rank on n3 that hangs, as it is decided and before anything is done."""
    world.now_s = AT_S
    (incident,) = world.decision([evidence(world.jobs["train/a"], "n3", at_s=AT_S)]).incidents
    assert incident.phase is IncidentPhase.ACTING
    return incident


def test_evidence_of_another_run_of_the_job_is_not_relevant() -> None:
    world = fleet()
    world.now_s = AT_S
    heard = evidence(world.jobs["train/a"], "n3", at_s=AT_S)

    assert is_relevant(heard, world.situation(), world.policy)
    assert not is_relevant(replace(heard, incarnation="train/a-earlier"), world.situation(), world.policy)


def test_evidence_about_a_node_that_was_replaced_is_not_relevant() -> None:
    world = fleet()
    world.now_s = AT_S
    heard = evidence(world.jobs["train/a"], "n3", at_s=AT_S, source=Origin.NODE)

    assert is_relevant(heard, world.situation(), world.policy)
    before = replace(heard, nodes=(NodeKey("n3", "uid-of-its-predecessor"),))
    assert not is_relevant(before, world.situation(), world.policy)


def test_a_domain_that_was_opened_again_takes_no_evidence_from_before_its_closing() -> None:
    world = fleet()
    again = replace(acting(world), id="domain/rack-1", domain="rack-1", generation=2, closed_s=AT_S + 50.0)
    heard = evidence(world.jobs["train/a"], "n3", at_s=AT_S + 40.0, source=Origin.NODE)

    assert folded({again.id: again}, [heard], world.situation()) == {again.id: again}
    later = replace(heard, at_s=AT_S + 60.0)
    assert folded({again.id: again}, [later], world.situation())[again.id].seen_s == AT_S + 60.0


def test_a_domain_takes_no_evidence_that_is_older_than_its_suspects_last_closing() -> None:
    """The job was restarted in place for n3; later n3 and n4 are slow, and the old fault is heard of again."""
    world = fleet(spares=0)
    before = evidence(world.jobs["train/a"], "n3", at_s=AT_S, source=Origin.NODE)
    world.cycle([before], at_s=AT_S)
    world.cycle(at_s=AT_S + 1)
    now_s, on = AT_S + 110, world.jobs["train/a"]
    slowness = [slow(on, name, at_s=now_s, since_s=now_s - 10, source=Origin.NODE) for name in ("n3", "n4")]

    decision = world.cycle([before, *slowness], at_s=now_s)

    (domain,) = [each for each in decision.incidents if each.domain]
    assert (domain.syndrome, domain.since_s) == (Syndrome.OTHER_SLOW, now_s - 10)


def test_an_incident_goes_on_from_a_taint_whose_record_was_lost() -> None:
    world = fleet()
    suspected = replace(acting(world), phase=IncidentPhase.SUSPECTED, remedy=Remedy.NONE, strikes=0)
    taint = OurTaint(suspected.id, suspected.generation, AT_S + 1)

    known = with_taint(suspected, world.nodes["n3"], taint)

    assert (known.phase, known.remedy, known.acted_s, known.strikes) == (
        IncidentPhase.ACTING,
        Remedy.QUARANTINE,
        AT_S + 1,
        1,
    )


def test_nothing_is_done_to_a_node_under_another_uid() -> None:
    world = fleet()
    incident = acting(world)
    tainted = list(node_intents([incident], around(world, incident).situation))
    assert [each.node.name for each in tainted] == ["n3"]

    world.nodes["n3"] = node("n3", uid="uid-of-its-successor")

    assert not list(node_intents([incident], around(world, incident).situation))


def test_a_gang_whose_budget_closes_after_the_decision_is_not_restarted() -> None:
    world = fleet()
    incident = acting(world)
    assert list(job_intents([incident], around(world, incident)))

    world.jobs["train/a"] = replace(world.jobs["train/a"], disruptions_allowed=0)

    assert not list(job_intents([incident], around(world, incident)))


def around(world: PretendFleet, incident: Incident) -> Around:
    return Around(world.situation(), world.policy, (incident,), places((incident,), world.situation(), spares=8))
