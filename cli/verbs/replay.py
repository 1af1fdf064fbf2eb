"""`tonnage replay`: support bundle replayed with this version's deciders, compared with the recorded plans."""

import time
from typing import TYPE_CHECKING

import click

from cli.inputs.planning import MOST_DEADLINE_S
from cli.printing.errors import FAILED

if TYPE_CHECKING:
    from controller.recording.bundle import Bundle
    from controller.recording.replay import Replayed


@click.command(epilog="tonnage replay bundle.tar.gz -o json")
@click.argument("file", metavar="BUNDLE", type=click.Path())
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--cycle", "numbers", type=int, multiple=True, help="Only the cycle with this number; may be repeated.")
@click.option(
    "--deadline",
    "deadline_s",
    type=click.FloatRange(min=0, min_open=True, max=MOST_DEADLINE_S),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for each plan. Long, so that a slower machine than the operator's decides the same.",
)
@click.pass_context
def replay(ctx: click.Context, file: str, output: str, numbers: tuple[int, ...], deadline_s: float) -> None:
    """Replay each recorded snapshot with this version's deciders and the bundle's settings, and compare the plans.

    Exits with 0 if every cycle has the same actions at the same cost, with 1 if one differs, with 2 if the bundle is
    unreadable.
    """
    from cli.inputs.bundles import bundle_in
    from cli.printing import bundle_output
    from cli.printing.documents import written

    bundle = bundle_in(file)
    click.echo(bundle_output.summary(bundle), err=True)
    cycles = _replayed(bundle, numbers, deadline_s)
    if output == "json":
        click.echo(written(bundle_output.replay_document(bundle, cycles), output), nl=False)
    else:
        for part in bundle_output.replay_tables(cycles):
            click.echo(part)
    if not all(each.is_same for each in cycles):
        ctx.exit(FAILED)


def _replayed(bundle: "Bundle", numbers: tuple[int, ...], deadline_s: float) -> "tuple[Replayed, ...]":
    from cli.inputs.bundles import brain_with
    from cluster.errors import ConfigError, Mistake
    from controller.guard import Limits
    from controller.recording.replay import replayed
    from controller.recording.shown_settings import settings_from

    settings, unknown = settings_from(bundle.about.settings)
    for name in unknown:
        click.echo(f"note: this version has no setting {name}; it is ignored", err=True)
    known = {entry.number for entry in bundle.entries}
    if missing := sorted(set(numbers) - known):
        raise ConfigError(
            Mistake(f"--cycle {missing[0]}", "is not in the bundle", f"the bundle has {len(known)} cycles")
        )
    cycles = (cycle for cycle in bundle.cycles() if not numbers or cycle.entry.number in numbers)
    limits = Limits(**settings.limits.model_dump())
    return tuple(replayed(cycles, brain_with(settings, time.monotonic), limits, deadline_s))
