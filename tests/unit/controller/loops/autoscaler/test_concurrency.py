"""Concurrency of a policy's replicas, as a cycle of the operator tunes it: figures, decision, status, and back."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autoscaler.concurrency.safe_bandit import Rules, SafeBandit
from autoscaler.demand.promql import Serving
from cluster.autoscaling import BanditState, Observation, Replicas, Scaler
from controller.deciders import autoscaling
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import with_measured
from controller.loops.autoscaler.targets import TargetState
from controller.report.fleet_metrics import samples_of_scaling
from controller.report.scaling_status import scaling_status_after
from controller.snapshot.scalers import PolicyState, scaler_of
from tests.builders.fleet import node, world
from tests.builders.turns import asked
from tests.unit.autoscaler.concurrency.replica import peaking, seen
from tests.unit.controller.loops.autoscaler.test_targets import BEGIN_S, policy

NAME = "default/web"
TUNED = {"tune": True, "min": 1, "max": 100, "start": 8, "p95": "10s"}
EVERY_S = 300.0
SETTLED = TargetState(Replicas(4, 4, (), BEGIN_S), "deployments")

Serve = Callable[[int], Observation]


def figures(each: Observation, replicas: int = 4) -> dict[str, float]:
    """Figures of so many replicas that each work as observed."""
    return {
        "throughput": each.throughput * replicas,
        "completed": float(each.requests),
        "request_p95": each.p95_s,
        "in_flight": each.in_flight * replicas,
        "replicas": float(replicas),
        "replicas_before": float(replicas),
        "input_mean": 300.0,
        "output_mean": 100.0,
    }


@dataclass
class Operator:
    """Cycles of an operator on one policy, whose status is all that it keeps between them."""

    spec: dict[str, Any] = field(default_factory=lambda: dict(TUNED))
    mode: str = "Auto"
    status: dict[str, Any] = field(default_factory=dict)
    target: TargetState = SETTLED
    turns: int = 0

    def turn(self, serve: Serve | None = seen, **changed: float) -> dict[str, Any]:
        """One interval of a workload, and a cycle; returns the status of the concurrency."""
        self.turns += 1
        at_s = BEGIN_S + EVERY_S * self.turns
        measured = Measured()
        if serve is not None:
            now = {**figures(serve(self.scaler(Measured(), at_s).concurrency.in_force)), **changed}  # type: ignore[union-attr]
            measured.put_serving(NAME, Serving(at_s, 200.0, figures=now))  # type: ignore[arg-type]
        return self.cycle(measured, at_s + 1.0)

    def cycle(self, measured: Measured, at_s: float) -> dict[str, Any]:
        scaler = self.scaler(measured, at_s)
        snapshot = replace(world([node("a")], at_s=at_s), scalers=(scaler,))
        plan = asked(autoscaling.decide, snapshot)
        limit = next(iter(plan.limits), None)
        found = next(iter(plan.findings)).reason
        self.status = scaling_status_after(self.status, scaler, found, generation=1, at_s=at_s, limit=limit)
        return dict(self.status["concurrency"])

    def scaler(self, measured: Measured, at_s: float) -> Scaler:
        read = policy(mode=self.mode, concurrency=self.spec)
        read = read.model_copy(update={"status": type(read.status).model_validate(self.status)})
        known = replace(world([node("a")]), at_s=at_s)
        known = replace(known, scalers=(scaler_of(NAME, read, known, PolicyState()),))
        (found,) = with_measured(known, {NAME: read}, measured, lambda _: self.target, {}).scalers
        return found

    @property
    def condition(self) -> tuple[str, str]:
        return next(
            (each["status"], each["reason"]) for each in self.status["conditions"] if each["type"] == "ConcurrencyTuned"
        )


def test_the_first_limit_is_the_one_in_force() -> None:
    operator = Operator()

    assert operator.turn(None)["limit"] == 8
    assert operator.condition == ("Unknown", "NotDecided")
    first = operator.turn()

    assert (first["limit"], first["inForce"], first["reason"]) == (8, 8, "ContextChanged")


def test_cycles_of_an_operator_decide_as_the_tuner_that_is_benchmarked() -> None:
    operator = Operator()
    bandit, limit, state = SafeBandit(Rules(10.0, start=8, lowest=1, highest=100)), 8, BanditState()
    for _ in range(40):
        of_operator = operator.turn(peaking)
        context = replace(peaking(limit), context=replace(peaking(limit).context, gpu_type="", input_bucket=4))
        decision = bandit.decide(state, context)
        # The status holds rounded figures.
        assert (of_operator["limit"], of_operator["reason"]) == (decision.limit, decision.reason)
        limit, state = decision.limit, decision.state

    # Throughput is highest at 20: docs of `peaking`.
    assert 15 <= limit <= 25
    assert of_operator["decisions"] == 40


def test_the_same_interval_is_decided_on_once() -> None:
    operator = Operator()
    for _ in range(3):
        operator.turn()
    measured = Measured()
    at_s = BEGIN_S + EVERY_S * 4
    measured.put_serving(NAME, Serving(at_s, 200.0, figures=figures(seen(9))))  # type: ignore[arg-type]

    once = operator.cycle(measured, at_s + 1.0)
    again = operator.cycle(measured, at_s + 2.0)

    assert again == once
    assert once["decisions"] == 4


def test_a_breach_takes_the_limit_back() -> None:
    operator = Operator()
    for _ in range(12):
        before = operator.turn()["limit"]

    after = operator.turn(lambda limit: seen(limit, p95_s=12.0))

    assert before > 8
    assert (after["limit"] < before, after["reason"]) == (True, "Breach")
    assert operator.condition == ("False", "Breach")


@pytest.mark.parametrize(
    ("target", "changed"),
    [
        (replace(SETTLED, replicas=Replicas(5, 4, (BEGIN_S,), BEGIN_S)), {}),
        # A pod became ready within the 200 s that were measured.
        (replace(SETTLED, changed_at_s=BEGIN_S + 10 * EVERY_S - 150.0), {}),
        (SETTLED, {"replicas_before": 3.0}),
    ],
)
def test_it_is_frozen_while_replicas_come_or_go(target: TargetState, changed: dict[str, float]) -> None:
    operator = Operator()
    for _ in range(9):
        before = operator.turn()
    operator.target = target

    after = operator.turn(**changed)

    assert (after["limit"], after["reason"]) == (before["limit"], "Scaling")
    assert after["learned"] == before["learned"]


def test_a_recommendation_leaves_the_limit_of_the_spec_in_force() -> None:
    for operator in (Operator(mode="Recommend"), Operator(spec={**TUNED, "tune": False})):
        for _ in range(6):
            status = operator.turn()

        assert status["inForce"] == 8
        assert status["limit"] == 10  # one step of 1.25 from the limit in force, as often as it is asked


@pytest.mark.parametrize("missing", ["throughput", "in_flight", "request_p95", "replicas"])
def test_without_a_figure_nothing_is_decided(missing: str) -> None:
    operator = Operator()
    for _ in range(4):
        before = operator.turn()

    after = operator.turn(**{missing: float("nan")})

    assert (after["limit"], after["reason"]) == (before["limit"], "NoData")
    assert operator.condition == ("False", "NoData")


def test_a_source_that_fails_is_named_and_what_was_learned_stays() -> None:
    operator = Operator()
    for _ in range(4):
        before = operator.turn()
    measured = Measured()
    measured.put_serving_failure(NAME, "PrometheusUnreachable", "no answer")

    assert operator.cycle(measured, BEGIN_S + 9000.0) == before
    assert operator.condition == ("False", "PrometheusUnreachable")


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
def test_figures_under_another_limit_than_the_one_in_force_teach_nothing(mode: str) -> None:
    operator = Operator(mode=mode)
    before = operator.turn()

    after = operator.turn(lambda _: seen(20))

    assert after == before
    assert operator.condition == ("False", "NotFollowed")


def test_knowledge_that_makes_no_sense_is_dropped_and_the_limit_stays() -> None:
    operator = Operator()
    for _ in range(5):
        before = operator.turn()
    context = operator.status["concurrency"]["learned"][0]
    # A variance far below what numbers resolve: the surrogate's equations become singular.
    arms = [{"limit": n, "weight": 1e9, "throughput": 100.0, "p95": -100.0} for n in (8, 9)]
    operator.status["concurrency"]["learned"] = [{**context, "arms": arms, "ceiling": 1e-9, "scatterWeight": 1e9}]

    after = operator.turn()

    assert 1 <= after["limit"] <= max(before["limit"] + 1, 1.25 * before["limit"])
    operator.turn()  # and the next interval is decided on as usual


@pytest.mark.parametrize("figure", ["throughput", "in_flight", "request_p95", "completed"])
def test_absurd_figures_harm_nothing_but_what_was_learned(figure: str) -> None:
    operator = Operator()
    for _ in range(4):
        operator.turn()
    for absurd in (1e300, 1e-300, 1e300):
        operator.turn(**{figure: absurd})

    assert 1 <= operator.turn()["limit"] <= 100


def test_bounds_that_were_narrowed_hold_at_once() -> None:
    operator = Operator()
    for _ in range(12):
        before = operator.turn()["limit"]
    operator.spec["max"] = 8

    assert before > 8
    assert operator.turn(None)["limit"] == 8


def test_a_policy_without_concurrency_has_no_condition_of_it() -> None:
    operator = Operator()
    operator.turn()
    known = operator.status
    plain = policy(mode="Auto")
    plain = plain.model_copy(update={"status": type(plain.status).model_validate(known)})
    snapshot = replace(world([node("a")]), at_s=BEGIN_S)
    scaler = scaler_of(NAME, plain, snapshot, PolicyState(load=1.0, observed_at_s=BEGIN_S))

    after = scaling_status_after(known, scaler, None, generation=2, at_s=BEGIN_S)

    assert "concurrency" not in after
    assert "ConcurrencyTuned" not in {each["type"] for each in after["conditions"]}


def test_metrics_show_the_limit_and_what_was_in_flight() -> None:
    operator = Operator()
    operator.turn()
    measured = Measured()
    measured.put_serving(NAME, Serving(BEGIN_S + 600.0, 200.0, figures=figures(seen(8))))  # type: ignore[arg-type]
    snapshot = replace(world([node("a")], at_s=BEGIN_S), scalers=(operator.scaler(measured, BEGIN_S + 601.0),))

    samples = {(each.name, each.labels[1:]): each.value for each in samples_of_scaling(snapshot, ())}

    assert samples["tonnage_scaling_concurrency_limit", ("wanted",)] == 8
    assert samples["tonnage_scaling_concurrency_limit", ("in_force",)] == 8
    assert samples["tonnage_scaling_concurrency_in_flight", ()] == 8.0
