"""Estimated profiles beside published measurements: errors, order of types, and what mixes of estimates cost."""

import math
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from cluster.demand import LengthGrid, Slo, ThroughputProfile
from placement.budget import Budget
from placement.mix.optimizer import answer_mix
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, mix_cost, pool_load, room_needed
from placement.mix.problem_builder import offer_of
from placement.roofline import ENGINES, Observed, prefill_s, refined, step_s, sustained, watts
from tests.rigs import measured_serving as rig
from tests.rigs.measured_serving import CARDS, CHIPS, Phases, Run, energy_runs, splitwise_phases, step_of
from tests.rigs.serving_profiles import length_histogram

CONSTANTS = ("bandwidth_share", "flops_share", "launch_s", "exchange_s", "request_s", "expert_s", "choice_share")
PHASE_CONSTANTS = ("bandwidth_share", "flops_share", "launch_s", "exchange_s", "request_s", "prefill_share",
                   "prefill_launch_s", "activation_bytes", "large_bytes_per_s")  # fmt: skip


def told(words: str) -> None:
    """Shown by `pytest -s`."""
    sys.stdout.write(f"\n{words}\n")


def median_error(estimated: np.ndarray, measured: np.ndarray) -> float:
    return float(np.median(np.abs(estimated / measured - 1)))


def both(phases: Phases, engine: object) -> tuple[float, float]:
    card, chip = CARDS[phases.model], CHIPS[phases.gpu]
    step = step_s(card, chip, engine, phases.gpus, np.array(phases.batch), np.array(phases.prompt + 64))
    return float(step), float(prefill_s(card, chip, engine, phases.gpus, np.array(phases.prompt), phases.batch))


@pytest.mark.data
def test_steps_of_models_that_the_fit_has_not_seen_are_within_a_quarter(public_data: Path) -> None:
    runs = energy_runs(public_data)
    families = sorted({run.model for run in runs})
    whole = median_error(np.array([step_of(r, ENGINES["vllm"]) for r in runs]), np.array([r.tpot_s for r in runs]))
    estimated = []
    for part in (0, 1):
        seen = [run for run in runs if families.index(run.model) % 2 == part]
        unseen = [run for run in runs if families.index(run.model) % 2 != part]
        times = np.array([run.tpot_s for run in seen])
        engine = rig.fitted(ENGINES["vllm"], CONSTANTS, lambda e, s=seen: np.array([step_of(r, e) for r in s]), times)
        estimated += [(step_of(run, engine), run.tpot_s) for run in unseen]
    held_out = median_error(*np.array(estimated).T)
    told(f"{len(runs)} runs of {len(families)} models: median error {whole:.1%}, of unseen models {held_out:.1%}")
    assert whole <= 0.12
    assert held_out <= 0.25


@pytest.mark.data
def test_phases_of_a_model_that_the_fit_has_not_seen_are_within_a_quarter(public_data: Path) -> None:
    phases = splitwise_phases(public_data)
    estimated = []
    for model in ("llama2-70b", "bloom-176b"):
        seen = [each for each in phases if each.model != model]
        measured = np.array([(each.step_s, each.prefill_s) for each in seen]).ravel()
        engine = rig.fitted(ENGINES["eager"], PHASE_CONSTANTS,
                            lambda e, s=seen: np.array([both(p, e) for p in s]).ravel(), measured)  # fmt: skip
        for each in phases:
            if each.model == model:
                step, prefill = both(each, engine)
                estimated.append((step / each.step_s, prefill / each.prefill_s))
    steps, prefills = np.abs(np.array(estimated) - 1).T
    told(f"{len(phases)} settings, unseen model: decode {np.median(steps):.1%}, prefill {np.median(prefills):.1%}")
    assert np.median(steps) <= 0.25
    assert np.median(prefills) <= 0.1


@pytest.mark.data
def test_the_order_of_gpu_types_is_right_in_nine_of_ten_pairs(public_data: Path) -> None:
    right = []
    same = defaultdict(list)
    for run in energy_runs(public_data):
        same[run.model, run.task, run.gpus, round(run.in_flight)].append(
            (run.gpu, run.tpot_s, step_of(run, ENGINES["vllm"]))
        )
    for each in splitwise_phases(public_data):
        step, prefill = both(each, ENGINES["eager"])
        same[each.model, each.gpus, each.prompt, each.batch, "decode"].append((each.gpu, each.step_s, step))
        same[each.model, each.gpus, each.prompt, each.batch, "prefill"].append((each.gpu, each.prefill_s, prefill))
    for group in same.values():
        for (gpu, measured, estimated), (other, measured_2, estimated_2) in combinations(group, 2):
            if gpu != other:
                right.append((measured < measured_2) == (estimated < estimated_2))
    told(f"order right in {sum(right)} of {len(right)} pairs ({np.mean(right):.1%})")
    assert len(right) > 100
    assert np.mean(right) >= 0.9


@pytest.mark.data
def test_watts_are_within_a_quarter(public_data: Path) -> None:
    runs = energy_runs(public_data)
    drawn = [float(watts(CARDS[r.model], CHIPS[r.gpu], ENGINES["vllm"], r.gpus, np.array(r.in_flight),
                         np.array(r.context), 0.0)) for r in runs]  # fmt: skip
    error = median_error(np.array(drawn), np.array([run.watts for run in runs]))
    told(f"watts: median error {error:.1%}")
    assert error <= 0.25


@pytest.mark.data
def test_two_hundred_requests_bring_an_estimate_within_a_tenth(public_data: Path) -> None:
    rng = np.random.default_rng(11)
    before, after, inside = [], [], []
    series = defaultdict(list)
    for run in energy_runs(public_data):
        series[run.model, run.task, run.gpu, run.gpus].append(run)
    grid = LengthGrid((256, 1024, 8192), (512, 1024, 16384))
    for (model, _, gpu, gpus), runs in series.items():
        # Requests at any of the measured batches, with a spread of 15 % as of a server's.
        drawn = [runs[n] for n in rng.integers(len(runs), size=200)]
        spread = rng.lognormal(0, 0.15, size=200)
        seen = [_request(run, run.tpot_s * f) for run, f in zip(drawn, spread, strict=True)]
        scale = refined(CARDS[model], CHIPS[gpu], ENGINES["vllm"], gpus, grid, seen)
        for run in runs:
            request = _request(run, run.tpot_s)
            column = int(np.searchsorted(grid.output_tokens, request.output_tokens))
            factor = scale.factor(np.full(grid.shape, run.in_flight))[0, column]
            before.append(step_of(run, ENGINES["vllm"]) / run.tpot_s)
            lone = prefill_s(CARDS[model], CHIPS[gpu], ENGINES["vllm"], gpus, np.array(200.0))
            carried = run.in_flight / request.output_tokens * lone
            after.append((step_of(run, ENGINES["vllm"]) * factor + carried) / run.tpot_s)
            inside.append(scale.error_share)
    first, then = (float(np.median(np.abs(np.array(each) - 1))) for each in (before, after))
    told(f"{len(series)} instances, 200 requests each: median error {first:.1%} before, {then:.1%} after; "
          f"stated {np.median(inside):.1%}")  # fmt: skip
    assert then <= 0.1
    assert then < first


def _request(run: Run, tpot_s: float) -> Observed:
    answer = max(2.0, (run.context - 200) / 0.55)
    return Observed(200, answer, run.in_flight, tpot_s)


PRICES = {"A100": 3.67, "H100": 7.516}
GRID = LengthGrid((128, 512, 2048, 4096), (64, 256, 512))


@pytest.mark.data
def test_a_mix_of_estimates_costs_a_tenth_more_and_less_once_they_are_refined(public_data: Path) -> None:
    """Llama-2-70B on six instance types, estimated by an engine that was fitted to BLOOM-176B alone. The mix of the
    estimates keeps its types by bucket, and has as many instances as the measured times ask for."""
    phases = splitwise_phases(public_data)
    seen = [each for each in phases if each.model == "bloom-176b"]
    times = np.array([(each.step_s, each.prefill_s) for each in seen]).ravel()
    engine = rig.fitted(ENGINES["eager"], PHASE_CONSTANTS,
                        lambda e: np.array([both(p, e) for p in seen]).ravel(), times)  # fmt: skip
    rng = np.random.default_rng(3)
    for is_refined in (False, True):
        costs = []
        for tpot_s in (0.08, 0.12):
            tables = {}
            for gpu, gpus in ((gpu, gpus) for gpu in PRICES for gpus in (2, 4, 8)):
                times, card, chip = rig.Measured(phases, "llama2-70b", gpu, gpus), CARDS["llama2-70b"], CHIPS[gpu]
                seen_now = [_served(times, rng) for _ in range(200)] if is_refined else []
                scale = refined(card, chip, engine, gpus, GRID, seen_now)
                estimate = sustained(card, chip, engine, gpus, GRID, tpot_s, scale).requests_per_s
                tables[gpu, gpus] = (times.table(GRID, tpot_s, chip), estimate)
            for prompt, answer in (((1020, 1.0), (129, 0.8)), ((1500, 0.7), (64, 0.5))):
                share = length_histogram(GRID, prompt, answer)
                for rate in (2.0, 4.0, 8.0, 16.0, 32.0):
                    truth, guess = (_need(tables, side, share * rate, tpot_s) for side in (0, 1))
                    best, mix = (answered(need) for need in (truth, guess))
                    loads = [pool_load(offer, mix.share[:, g]) for g, offer in enumerate(truth.offers)]
                    counts = [math.ceil(room_needed(*each, None) - 1e-9) for each in loads]
                    cost = sum(n * offer.price_per_hour for n, offer in zip(counts, truth.offers, strict=True))
                    costs.append((cost, mix_cost(truth, best)))
        estimated, measured = np.array(costs).T
        ratios = estimated / measured
        told(
            f"{len(costs)} mixes of {'refined ' * is_refined}estimates cost {estimated.sum() / measured.sum() - 1:.1%} "
            f"more together; one alone {ratios.mean() - 1:.1%} on average, {ratios.max() - 1:.1%} at most"
        )
        assert estimated.sum() <= 1.1 * measured.sum()


def _served(times: rig.Measured, rng: np.random.Generator) -> Observed:
    """A request of a service whose load goes up and down, with the spread of a server's."""
    batch, prompt, answer = float(2 ** rng.uniform(0, 5.5)), float(rng.choice(GRID.input_tokens)), 256.0
    lone = float(times.prefill_s(np.array(prompt)))
    tpot_s = float(times.step_s(np.array(batch), np.array(prompt + answer / 2))) + batch / answer * lone
    return Observed(prompt, answer, batch, tpot_s * rng.lognormal(0, 0.15), lone * rng.lognormal(0, 0.1))


def _need(tables: dict, side: int, rate: np.ndarray, tpot_s: float) -> Need:
    cells = tuple((int(i), int(j)) for i, j in np.argwhere(rate > 0))
    rates = np.array([rate[cell] for cell in cells])
    offers = tuple(
        offer_of(ThroughputProfile("m", gpu.lower(), Slo(tpot_s), GRID, both_tables[side], gpus), PRICES[gpu], GRID,
                 cells, rates)
        for (gpu, gpus), both_tables in tables.items()
    )  # fmt: skip
    return Need("s", Slo(tpot_s), GRID, cells, rates, offers)


def answered(need: Need) -> Mix:
    answer = answer_mix(MixQuestion((need,)), Budget(2000.0, lambda: 0.0), gap=0.001)
    assert isinstance(answer, MixAnswer)
    return answer.mixes[0]
