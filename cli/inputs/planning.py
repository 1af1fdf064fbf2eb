"""Planning from files or a live cluster: what `plan` and `explain` have in common."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from cli.inputs.cluster import Cluster, Target, on_cluster

if TYPE_CHECKING:
    from cluster.plans import Plan
    from cluster.snapshot import Snapshot
    from controller.objects.read import Note
    from controller.queries.list_once import ListedCluster
    from controller.settings import OperatorSettings
    from controller.snapshot.from_manifests import Observed
    from placement.engine.packer import Packer

Decide = Callable[["Snapshot"], "Plan"]
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_DEADLINE_S = 10.0
"""Of a scenario."""
TIME_SLACK = 30.0
"""Deadlines that may pass before time ends a command's plan: no pods wait for it, and its reader wants the same plan
from a busy machine. Chosen: the work of a deadline takes a third of it on a quiet core."""
MOST_DEADLINE_S = 86_400.0
"""Nobody waits longer than a day for a plan; a larger number was meant in other units."""


@dataclass(frozen=True, slots=True)
class Planning:
    """How to plan, as the options of a command ask for it."""

    config: Path | None = None
    """Settings of an operator; None: those of the cluster's operator, or the defaults."""
    policy: str | None = None
    """Instead of that of the settings; so are the other options."""
    deadline_s: float | None = None
    move_share: float = 0.0

    def on_files(self) -> "OperatorSettings":
        """The settings for a fleet in files. Raises ConfigError."""
        from controller.settings import read_settings, settings_from

        return self.over(read_settings(self.config) if self.config else settings_from({}))

    def over(self, settings: "OperatorSettings") -> "OperatorSettings":
        """The settings with what the options say otherwise. Raises ConfigError."""
        from controller.settings import with_changes

        return with_changes(settings, policy=self.policy, plan_deadline_s=self.deadline_s)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, the world that it was made for, and what its reader should know of that world."""

    snapshot: "Snapshot"
    plan: "Plan"
    settings: "OperatorSettings"
    """With which it was made."""
    notes: "tuple[Note, ...]" = ()


def planned(files: Sequence[str], planning: Planning, stdin: TextIO | None = None) -> Planned:
    """The plan for the cluster that these files describe. Raises ConfigError with every mistake in them."""
    settings, observed = planning.on_files(), read(files, stdin)
    plan = decider(settings, planning.move_share)(observed.snapshot)
    return Planned(observed.snapshot, plan, settings, observed.notes)


def read(files: Sequence[str], stdin: TextIO | None = None) -> "Observed":
    """The cluster that these files describe. Raises ConfigError with every mistake in them."""
    from controller.objects.manifests import read_manifests
    from controller.snapshot.from_manifests import snapshot_from

    with _without_collecting():
        return snapshot_from(read_manifests(files, stdin))


def planned_on(target: Target, planning: Planning) -> Planned:
    """The plan for a live cluster, as the operator would make it now. Raises ConfigError, KubeReadError.

    Only pods that wait for Tonnage are placed: others are left to their own scheduler.
    """
    from cluster.plans import Reason
    from controller.objects.read import Note

    async def work(cluster: Cluster) -> Planned:
        settings = await settings_on(cluster, planning)
        seen = await look_to_plan(cluster, settings)
        observed, snapshot = seen.seen(), seen.to_plan_on()
        wrong = tuple(Note(m.place, Reason("LeftOut", f"is left out: {m.problem}")) for m in seen.mistakes())
        plan = decider(settings, planning.move_share, awaits_pods=True)(snapshot)
        return Planned(snapshot, plan, settings, (*wrong, *observed.notes))

    with _without_collecting():
        return on_cluster(target, work)


async def look_to_plan(cluster: Cluster, settings: "OperatorSettings") -> "ListedCluster":
    """The cluster, listed once, as an operator with these settings would see it. Raises KubeReadError."""
    from controller.queries.list_once import list_cluster

    return await list_cluster(cluster.connection, time.time, settings)


async def settings_on(cluster: Cluster, planning: Planning) -> "OperatorSettings":
    """The settings for a live cluster; says on standard error which. Raises ConfigError, KubeReadError."""
    from controller.settings import read_settings

    if planning.config is not None:
        settings, where = read_settings(planning.config), f"the settings of {planning.config}"
    else:
        settings, where = await _operators_settings(cluster)
    click.echo(f"note: planned with {where}", err=True)
    if settings.power.enabled:
        click.echo("note: planned without watts, which only the leader knows: pods may lack power headroom", err=True)
    return planning.over(settings)


async def _operators_settings(cluster: Cluster) -> "tuple[OperatorSettings, str]":
    from cluster.errors import ConfigError, Mistake
    from controller.queries.installation import find_installation

    installation = await find_installation(cluster.connection)
    try:
        settings = installation.operator_settings
    except ConfigError as error:
        remedy = "an operator of another version has them; give its settings in this version's words by --config FILE"
        raise ConfigError(tuple(Mistake(m.place, m.problem, remedy) for m in error.mistakes)) from error
    if installation.settings_place:
        return settings, f"the operator's settings, of {installation.settings_place}"
    why = installation.unread or "no ConfigMap of an operator is there"
    return settings, f"an operator's default settings ({why}); --config FILE gives others"


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


def decider(settings: "OperatorSettings", move_share: float = 0.0, *, awaits_pods: bool = False) -> Decide:
    """What an operator with these settings would do, guarded as it would be, and with the work that it would spend.

    awaits_pods: whether services' pods come into being only after they were scaled, as on a cluster.
    """
    from controller.brain.from_settings import decisions_from, inline_brain, limits_from
    from controller.guard import guard

    decisions = replace(decisions_from(settings, awaits_pods=awaits_pods, explain=True), move_share=move_share)
    brain, limits = inline_brain(decisions), limits_from(settings)
    deadline_s = TIME_SLACK * settings.plan_deadline_s
    return lambda snapshot: guard(snapshot, brain.plan(snapshot, deadline_s), limits)


def packer_of(settings: "OperatorSettings") -> "Callable[[Snapshot], Packer]":
    """Makes the packing engine that `decider` places pods with."""
    from controller.brain.from_settings import decisions_from
    from controller.deciders.packing import packer_for

    decisions = decisions_from(settings)
    return lambda snapshot: packer_for(snapshot, decisions)


def _number(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """NaN lies within every range that click checks."""
    if value is not None and isnan(value):
        raise click.BadParameter("NaN is no number of seconds")
    return value


def planning_options(command: Command) -> Command:
    """The options that say what to plan, and how."""
    for option in (
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Settings of an operator. [default: of the cluster's operator, else an operator's defaults]",
        ),
        click.option("--policy", metavar="NAME", help="Placement policy, instead of that of the settings."),
        click.option(
            "--deadline",
            "deadline_s",
            type=click.FloatRange(min=0, min_open=True, max=MOST_DEADLINE_S),
            callback=_number,
            metavar="SECONDS",
            help="Work for deciding, as the time it takes at most on a slow core, instead of that of the settings (2).",
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
