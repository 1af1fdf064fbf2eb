"""`tonnage power`: power as reported in the status of PowerDomains, and the headroom of a row."""

import json
from typing import TYPE_CHECKING

import click

from cli.inputs.cluster import ClusterAccess, cluster_options, listed
from cli.inputs.options import output_choice
from cli.printing.columns import columns
from cli.printing.terminal import FAILED, VerbGroup
from cli.verbs.simulate_power import headroom

if TYPE_CHECKING:
    from cli.printing.power_domain_output import ReportedDomain


@click.group(cls=VerbGroup)
def power() -> None:
    """Show power draw, devices held back and why, and how many more servers fit under a budget."""


@power.command(epilog="tonnage power status")
@output_choice("table", "json")
@cluster_options
@click.pass_context
def status(ctx: click.Context, output: str, access: ClusterAccess) -> None:
    """Show draw, budget and headroom of every power domain in watts, and its devices that are held back or silent.

    Exits with 1 if a domain is not Ready.
    """
    from cli.printing.power_domain_output import HEADERS, as_data, rows

    domains = _domains(access)
    lines = list(rows(domains))
    if output == "json":
        click.echo(json.dumps(as_data(domains), indent=2))
    elif lines:
        click.echo(columns(HEADERS, lines), nl=False)
    else:
        click.echo("No power domains found.", err=True)
    if any(line[HEADERS.index("READY")] != "True" for line in lines):
        ctx.exit(FAILED)


@power.command(epilog="tonnage power explain rack-7")
@click.argument("target", metavar="DOMAIN|NODE|DEVICE")
@output_choice("table", "json")
@cluster_options
@click.pass_context
def explain(ctx: click.Context, target: str, output: str, access: ClusterAccess) -> None:
    """Explain the power limits of devices: which domain is short, which class is limited first, which device disobeys.

    DEVICE is a UUID. A status lists only the 128 devices of its domain with the largest shortfall.
    """
    from cli.printing.power_domain_output import why

    found = why(_domains(access), target)
    if found is None:
        click.echo(
            f"{target} is not a power domain, and no status lists it: it is not held back, or not among those listed",
            err=True,
        )
        ctx.exit(FAILED)
    click.echo(json.dumps(found.data, indent=2) if output == "json" else "\n".join(found.lines))


power.add_command(headroom)


def _domains(access: ClusterAccess) -> "tuple[ReportedDomain, ...]":
    from cli.printing.power_domain_output import domains_of

    return domains_of(listed(access, "powerdomains", all_namespaces=True))
