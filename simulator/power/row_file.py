"""A user's own row in YAML: pools of servers, each with its machine, its work, and the course of its load."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import Field, ValidationError

from cluster.arrays import column
from cluster.errors import ConfigError, Mistake
from cluster.field_errors import setting_mistakes
from controller.api import fields
from simulator.power.machine import MACHINES, Machine
from simulator.power.requests import CHAT_MIX, CLASSES, SHAPES, RateCurve, ServerPool, code_mix, shaped_rates

COURSE_BUCKET_S = 10.0
"""Resolution of a course that is written in a file: the load changes from one stretch to the next within this time."""


class StepOfJob(fields.Strict):
    """A step of a job, which repeats itself."""

    compute_seconds: fields.PositiveNumber = Field(description="Time that a step computes at full clock, seconds.")
    other_seconds: fields.PositiveNumber = Field(description="Time for exchange or loading after it, seconds.")
    compute_share: fields.Fraction = Field(default=1.0, description="Draw while it computes, as a fraction of TDP.")
    other_share: fields.Fraction = Field(default=0.4, description="Draw in the rest, as a fraction of TDP.")


class PoolOfServers(fields.Strict):
    """Servers of one machine with one kind of work."""

    name: fields.DnsLabel = Field(description="Name of the pool in tables.")
    service_class: Literal["low", "high"] = Field(alias="class", description="low is limited first.")
    servers: int = Field(ge=1, le=10_000, description="Number of servers of the row as planned.")
    machine: Literal["dgx-a100", "dgx-h100", "dgx-b200", "a100-mig"] = "dgx-a100"
    gpu_watts: fields.PositiveNumber | None = Field(default=None, description="TDP of a GPU, if it differs.")
    other_watts: fields.NumberFromZero | None = Field(default=None, description="Draw besides GPUs, if it differs.")
    work: Literal["chat", "code", "training", "batch"] = "chat"
    batch: int = Field(default=1, ge=1, le=128, description="Requests that a server handles together.")
    busy: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=0.8, description="Fraction busy at the highest rate; above 1, requests queue."
    )
    burstiness: fields.NumberFromZero = Field(default=1.0, description="Burstiness of arrivals: 1 is Poisson.")
    step: StepOfJob | None = Field(default=None, description="Step of training or batch jobs.")
    course: str | fields.ListOf[Annotated[tuple[float, float], Field(strict=False)]] | None = Field(
        default=None, description="Stretches as [hours, fraction of the highest load], repeated; or a name."
    )
    bursts: bool | None = Field(default=None, description="Whether it may exceed limits for moments.")


class RowOfPools(fields.Strict):
    """The file."""

    hours: fields.PositiveNumber | None = Field(default=None, description="Duration; else that of the rates.")
    pools: fields.ListOf[PoolOfServers] = Field(min_length=1, max_length=32, description="Its pools of servers.")


STEPS = {
    "training": StepOfJob(computeSeconds=3.2, otherSeconds=0.8),
    "batch": StepOfJob(computeSeconds=60.0, otherSeconds=15.0, otherShare=0.3),
}
"""Steps where the file states none. Chosen: training swings every few seconds, a batch job loads its next inputs."""


def read_row(path: Path, rates: RateCurve) -> tuple[ServerPool, ...]:
    """The pools of the row in this file. rates: of the pools without a course of their own.

    Raises ConfigError with every field that is wrong.
    """
    try:
        row = RowOfPools.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(Mistake(str(path), f"cannot be read ({error})", "see simulator/power/rows/")) from error
    except ValidationError as error:
        raise ConfigError(tuple(setting_mistakes(error, str(path), RowOfPools))) from error
    names = [each.name for each in row.pools]
    mistakes = []
    for number, each in enumerate(row.pools):
        place = f"{path}, pools.{number}"
        if each.name in names[:number]:
            mistakes.append(Mistake(f"{place}.name", f"{each.name!r} is the name of another pool"))
        if each.step is not None and each.work not in STEPS:
            mistakes.append(Mistake(f"{place}.step", f"{each.work} has no steps", f"for {' and '.join(STEPS)} only"))
        if isinstance(each.course, str) and each.course not in SHAPES:
            mistakes.append(Mistake(f"{place}.course", f"is {each.course!r}", f"known names: {', '.join(SHAPES)}"))
        elif isinstance(each.course, tuple) and not _is_course(each.course):
            remedy = "write [hours, share] with hours above 0, shares from 0 to 1, one of them above 0"
            mistakes.append(Mistake(f"{place}.course", "is not a course", remedy))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    for_s = rates.for_s if row.hours is None else row.hours * 3600.0
    return tuple(_pool(each, rates, for_s) for each in row.pools)


def _is_course(course: tuple[tuple[float, float], ...]) -> bool:
    """Whether every stretch is at least one bucket long, no load is below 0 or above 1, and some load is above 0."""
    shares = [share for _, share in course]
    long_enough = all(hours * 3600.0 >= COURSE_BUCKET_S for hours, _ in course)
    return long_enough and min(shares, default=-1.0) >= 0 and 0 < max(shares) <= 1


def _pool(each: PoolOfServers, rates: RateCurve, for_s: float) -> ServerPool:
    """The pool of this entry of the file. Slices of a machine each take one request; a job has no batch, and
    keeps to hard limits unless the file says otherwise, since its servers may begin and swing together.
    """
    step = (each.step or STEPS.get(each.work)) if each.work in STEPS else None
    machine = replace(
        MACHINES[each.machine],
        gpu_tdp_w=each.gpu_watts or MACHINES[each.machine].gpu_tdp_w,
        other_w=MACHINES[each.machine].other_w if each.other_watts is None else each.other_watts,
    )
    pool = ServerPool(
        name=each.name,
        of_class=CLASSES.index(each.service_class),
        servers=each.servers,
        machine=machine if step is None else _stepping(machine, step),
        curve=_curve(each, rates).lasting(for_s),
        mix=code_mix() if each.work == "code" else CHAT_MIX,
        peak_busy_share=each.busy,
        burstiness=each.burstiness,
        batch=1 if step else machine.slices if machine.slices > 1 else each.batch,
        bursts=step is None if each.bursts is None else each.bursts,
    )
    return replace(pool, step_s=step.compute_seconds, together=each.work == "training") if step else pool


def _stepping(machine: Machine, step: StepOfJob) -> Machine:
    """The machine with its phases replaced by those of a step."""
    one = column([1.0], np.float64)
    return replace(
        machine,
        prompt_share=column([step.compute_share] * len(machine.prompt_share), np.float64),
        batch=one,
        token_s=step.other_seconds * one,
        token_share=step.other_share * one,
        slices=1,
    )


def _curve(each: PoolOfServers, rates: RateCurve) -> RateCurve:
    """Course of the load: its own, else that of the rates for requests and a constant one for jobs. A written course
    is relative to its highest load.
    """
    if each.course is None:
        return RateCurve("", 600.0, np.ones(1)) if each.work in STEPS else rates
    if isinstance(each.course, str):
        return shaped_rates(each.course)
    share = [share for hours, share in each.course for _ in range(round(hours * 3600.0 / COURSE_BUCKET_S))]
    return RateCurve("its course", COURSE_BUCKET_S, column(share, np.float64) / max(share))
