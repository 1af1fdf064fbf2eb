"""Planning from files or a live cluster: what `plan` and `explain` have in common."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from cli.inputs.cluster import Cluster, Target, on_cluster

if TYPE_CHECKING:
    from cluster.plans import Plan
    from cluster.snapshot import Snapshot
    from controller.objects.read import Note
    from controller.snapshot.from_manifests import Observed
    from placement.engine.packer import Packer

Decide = Callable[["Snapshot"], "Plan"]
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_POLICY = "tonnage"
DEFAULT_DEADLINE_S = 10.0
TIME_SLACK = 30.0
"""Deadlines that may pass before time ends a command's plan: no pods wait for it, and its reader wants the same plan
from a busy machine. Chosen: the work of a deadline takes a third of it on a quiet core."""
MOST_DEADLINE_S = 86_400.0
"""Nobody waits longer than a day for a plan; a larger number was meant in other units."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, the world that it was made for, and what its reader should know of that world."""

    snapshot: "Snapshot"
    plan: "Plan"
    notes: "tuple[Note, ...]" = ()


def planned(files: Sequence[str], decide: Decide, stdin: TextIO | None = None) -> Planned:
    """The plan for the cluster that these files describe. Raises ConfigError with every mistake in them."""
    observed = read(files, stdin)
    return Planned(observed.snapshot, decide(observed.snapshot), observed.notes)


def read(files: Sequence[str], stdin: TextIO | None = None) -> "Observed":
    """The cluster that these files describe. Raises ConfigError with every mistake in them."""
    from controller.objects.manifests import read_manifests
    from controller.snapshot.from_manifests import snapshot_from

    with _without_collecting():
        return snapshot_from(read_manifests(files, stdin))


def planned_on(target: Target, decide: Decide) -> Planned:
    """The plan for a live cluster, as the operator would make it now. Raises ConfigError, KubeReadError.

    Only pods that wait for Tonnage are placed: others are left to their own scheduler.
    """
    from controller.objects.read import Note
    from controller.queries.installation import find_installation
    from controller.queries.list_once import look

    async def work(cluster: Cluster) -> Planned:
        installation = await find_installation(cluster.connection)
        seen = await look(cluster.connection, time.time)
        observed = seen.seen()
        snapshot = seen.to_plan_on(observed.snapshot, installation)
        wrong = tuple(Note(m.place, Reason("LeftOut", f"is left out: {m.problem}")) for m in seen.mistakes())
        return Planned(snapshot, decide(snapshot), (*wrong, *observed.notes))

    from cluster.plans import Reason

    with _without_collecting():
        return on_cluster(target, work)


def one_origin(files: Sequence[str], **access: object) -> None:
    """Raises click.UsageError when files and a cluster are named both."""
    named = [name for name, value in access.items() if value is not None]
    if files and named:
        raise click.UsageError(f"-f plans what files say, --{named[0]} names a cluster: give one of them")


@contextmanager
def _without_collecting() -> Iterator[None]:
    """No garbage collection meanwhile: it looks through millions of live objects again and again and finds nothing.

    Halves the time to read a fleet of 1,200 nodes and 8,000 pods from JSON, and takes two thirds of it from YAML.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def decider(policy: str, deadline_s: float, move_share: float = 0.0) -> Decide:
    """What the product would do, guarded as it would be, with the work that belongs to the deadline."""
    from controller.brain.inline import InlineBrain
    from controller.deciders.decisions import Decisions
    from controller.guard import Limits, guard

    decisions = Decisions(within_s=deadline_s, policy=policy, move_share=move_share)
    brain = InlineBrain(decisions, clock=time.monotonic)
    return lambda snapshot: guard(snapshot, brain.plan(snapshot, TIME_SLACK * deadline_s), Limits())


def packer_of(policy: str) -> "Callable[[Snapshot], Packer]":
    """Makes the packing engine that `decider` places pods with."""
    from controller.deciders.decisions import Decisions
    from controller.deciders.packing import packer_for

    return lambda snapshot: packer_for(snapshot, Decisions(policy=policy))


def _number(_: click.Context, __: click.Parameter, value: float) -> float:
    """NaN lies within every range that click checks."""
    if isnan(value):
        raise click.BadParameter("NaN is no number of seconds")
    return value


def planning_options(command: Command) -> Command:
    """The options that say what to plan, and how."""
    for option in (
        click.option("--policy", default=DEFAULT_POLICY, show_default=True, help="Placement policy."),
        click.option(
            "--deadline",
            "deadline_s",
            type=click.FloatRange(min=0, min_open=True, max=MOST_DEADLINE_S),
            callback=_number,
            default=DEFAULT_DEADLINE_S,
            show_default=True,
            metavar="SECONDS",
            help="Work for deciding, as the time it takes at most on a slow core: the same work on any machine.",
        ),
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            type=click.Path(allow_dash=True),
            help="Manifest file, or folder of them; may be repeated. - reads standard input. Without it: the cluster.",
        ),
    ):
        command = option(command)
    return command


def say(notes: "Iterable[Note | str]") -> None:
    """Notes are words: they go where the data does not."""
    for note in notes:
        click.echo(f"note: {note}", err=True)
