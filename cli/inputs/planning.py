"""Planning from files or a live cluster, as `plan`, `explain` and other verbs share it."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, LiveCluster, duration, on_cluster
from cli.inputs.options import adding, files_option
from cluster.collector import paused_collector

if TYPE_CHECKING:
    from cluster.plans import Plan
    from cluster.snapshot import Snapshot
    from controller.objects.documents import Readable
    from controller.objects.read import Note
    from controller.settings import OperatorSettings
    from controller.snapshot.from_manifests import Observed
    from placement.engine.packer import Packer

Decide = Callable[["Snapshot"], "Plan"]

DEFAULT_DEADLINE_S = 10.0
"""Default deadline of one scenario of `whatif`, s."""
TIME_SLACK = 30.0
"""Time limit of a command's plan, as a multiple of its deadline. No pods wait for it, and a busy machine should give
the same plan. Chosen: the work of a deadline takes a third of it on an idle core."""
MOST_DEADLINE_S = 86_400.0
"""Upper limit of `--deadline`, s: one day; a larger number was probably meant in another unit."""


@dataclass(frozen=True, slots=True)
class Planning:
    """Planning options of a command."""

    config: Path | None = None
    """File with an operator's settings; None: settings of the cluster's operator, or the defaults."""
    policy: str | None = None
    """Placement policy; like the options below it replaces the value of the settings."""
    deadline_s: float | None = None

    def on_files(self) -> "OperatorSettings":
        """Settings for a fleet in files. Raises ConfigError."""
        from controller.settings import read_settings, settings_from

        return self.over(read_settings(self.config) if self.config else settings_from({}))

    def over(self, settings: "OperatorSettings") -> "OperatorSettings":
        """Settings with the values of these options. Raises ConfigError."""
        from controller.settings import with_changes

        return with_changes(settings, policy=self.policy, plan_deadline_s=self.deadline_s)


@dataclass(frozen=True, slots=True)
class Planned:
    """Plan, with the snapshot and settings it was made from, and notes about the input."""

    snapshot: "Snapshot"
    plan: "Plan"
    settings: "OperatorSettings"
    """Settings that the plan was made with."""
    notes: "tuple[Note, ...]" = ()


def planned(files: Sequence[str], planning: Planning, stdin: "Readable | None" = None) -> Planned:
    """Plan for the cluster that these files describe. Raises ConfigError with all their errors."""
    from controller.kube_world.cached_view import pools_from
    from controller.placers import PlacementModes

    settings, observed = planning.on_files(), read(files, stdin, with_strangers=True)
    snapshot = PlacementModes(pools_from(settings)).with_strangers(observed.snapshot)
    plan = decider(settings)(snapshot)
    return Planned(snapshot, plan, settings, observed.notes)


def read(files: Sequence[str], stdin: "Readable | None" = None, *, with_strangers: bool = False) -> "Observed":
    """Snapshot of the cluster that these files describe, with notes. Raises ConfigError with all their errors."""
    from controller.objects.manifests import read_manifests
    from controller.snapshot.from_manifests import snapshot_from

    with paused_collector(freezes=True):
        return snapshot_from(read_manifests(files, stdin), with_strangers=with_strangers)


def dump_of(access: ClusterAccess) -> BytesIO:
    """Objects of the cluster that plans are made from, as `kubectl get -A -o json` has them. Raises KubeReadError."""
    import msgspec

    from controller.api.foreign_kinds import FOREIGN_KINDS
    from controller.api.kinds import KINDS
    from controller.kube import crud
    from controller.kube.request import ABSENT, KubeReadError
    from controller.objects.manifests import BESIDE_PODS

    kinds = [*BESIDE_PODS, *((kind.api_version, kind.name) for kind in KINDS if kind.is_planned_from)]
    kinds += [(version, kind.name) for kind in FOREIGN_KINDS for version in kind.api_versions]

    async def work(cluster: LiveCluster) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for version, name in kinds:
            if (resource := cluster.discovered.of_kind(version, name)) is None:
                continue
            try:
                listed = await crud.list_all(cluster.connection, resource.collection())
            except KubeReadError as error:
                if name in ("Node", "Pod") or error.refusal.status not in ABSENT:
                    raise
                click.echo(f"note: left out: {error.refusal.words}", err=True)
            else:
                found += [{"apiVersion": version, "kind": name, **each} for each in listed]
        return found

    items = on_cluster(access, work)
    return BytesIO(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))


def planned_on(access: ClusterAccess, planning: Planning) -> Planned:
    """Plan for a live cluster, as its operator would make it now. Raises ConfigError, KubeReadError.

    Only pods that wait for Tonnage are placed; other schedulers place their own.
    """
    from cluster.plans import Reason
    from controller.objects.read import Note
    from controller.queries.list_once import list_cluster

    async def work(cluster: LiveCluster) -> Planned:
        settings = await settings_on(cluster, planning)
        seen = await list_cluster(cluster.connection, time.time, settings)
        observed, snapshot = seen.seen(), seen.to_plan_on()
        wrong = tuple(Note(m.place, Reason("LeftOut", f"is left out: {m.problem}")) for m in seen.mistakes())
        plan = decider(settings, awaits_pods=True)(snapshot)
        return Planned(snapshot, plan, settings, (*wrong, *observed.notes))

    with paused_collector(freezes=True):
        return on_cluster(access, work)


async def settings_on(cluster: LiveCluster, planning: Planning) -> "OperatorSettings":
    """Settings for a live cluster; prints their origin to standard error. Raises ConfigError, KubeReadError."""
    from cluster.errors import ConfigError, Mistake
    from controller.queries.installation import find_installation
    from controller.settings import read_settings

    if planning.config is not None:
        settings, where = read_settings(planning.config), f"the settings of {planning.config}"
    else:
        installation = await find_installation(cluster.connection)
        try:
            settings = installation.operator_settings
        except ConfigError as error:
            remedy = "the operator has another version; give settings in this version's format with --config FILE"
            raise ConfigError(tuple(Mistake(m.place, m.problem, remedy) for m in error.mistakes)) from error
        why = installation.unread or "no operator ConfigMap found"
        where = f"default settings ({why}); --config FILE overrides them"
        if installation.settings_place:
            where = f"the operator's settings from {installation.settings_place}"
    click.echo(f"note: planned with {where}", err=True)
    if settings.power.enabled:
        click.echo(
            "note: planned without power readings, which only the leader has: pods may lack power headroom", err=True
        )
    return planning.over(settings)


def one_origin(files: Sequence[str], access: ClusterAccess) -> None:
    """Raises click.UsageError when both files and a cluster are given."""
    if files and access.named_by:
        raise click.UsageError(f"give either -f (files) or {access.named_by} (a cluster)")


def decider(settings: "OperatorSettings", *, awaits_pods: bool = False) -> Decide:
    """Planner with these settings: as an operator would plan, with its guard and its work budget.

    awaits_pods: whether pods of services exist only after scaling, as on a cluster.
    """
    from controller.brain.inline import InlineBrain, decisions_from, limits_from
    from controller.guard import guard

    brain, limits = InlineBrain(decisions_from(settings, awaits_pods=awaits_pods, explain=True)), limits_from(settings)
    deadline_s = TIME_SLACK * settings.plan_deadline_s
    return lambda snapshot: guard(snapshot, brain.plan(snapshot, deadline_s), limits)


def packer_of(settings: "OperatorSettings") -> "Callable[[Snapshot], Packer]":
    """Function that builds the packing engine with which `decider` places pods."""
    from controller.brain.inline import decisions_from
    from controller.deciders.packing import packer_for

    decisions = decisions_from(settings)
    return lambda snapshot: packer_for(snapshot, decisions)


def deadline(value: str | float) -> float:
    """Seconds of `--deadline`: a number, or a duration such as `5m`. Raises click.BadParameter."""
    with suppress(click.BadParameter):
        if 0 < (seconds := duration(value)) <= MOST_DEADLINE_S:
            return seconds
    raise click.BadParameter(f"{value!r} is not a time above 0 and up to 24h; write 10, 30s or 5m")


def complete_policies(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Placement policies; with commas, that of the last part."""
    from placement.policies import POLICIES

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in POLICIES if name.startswith(last)]


planning_options = adding(
    files_option("Manifest file or folder; may be repeated. - reads standard input. [default: the cluster]"),
    click.option("--deadline", "deadline_s", type=deadline, metavar="DURATION",
                 help="Work budget, as the longest time it takes on a slow core, instead of that of the settings (2)."),
    click.option("--policy", metavar="NAME", shell_complete=complete_policies,
                 help="Placement policy, instead of that of the settings."),
    click.option("--config", type=click.Path(path_type=Path), metavar="FILE",
                 help="Operator settings. [default: those of the cluster's operator, otherwise the defaults]"),
)  # fmt: skip
"""Adds the options that select the fleet and how to plan it."""


def print_notes(notes: "Iterable[Note | str]") -> None:
    """Print notes to standard error, away from the results; not those of kinds that no plan is made of anyway."""
    from controller.objects.manifests import CONCERN_NO_PLAN

    for note in notes:
        if not isinstance(note, str) and note.about in CONCERN_NO_PLAN and note.reason.code == "KindNotRead":
            continue
        click.echo(f"note: {note}", err=True)
