"""`tonnage power status` and `tonnage power explain`: power as reported in the status of PowerDomains."""

import json
from typing import TYPE_CHECKING

import click

from cli.inputs.cluster import Impersonated, Target, cluster_options, listed, target_from
from cli.printing.columns import columns
from cli.printing.errors import FAILED

if TYPE_CHECKING:
    from cli.printing.power_domain_output import Domain

OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.command(epilog="tonnage power status")
@OUTPUT
@cluster_options
@click.pass_context
def status(
    ctx: click.Context,
    output: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Show draw, budget and headroom of every power domain in watts, and its devices that are held back or silent.

    Exits with 1 if a domain is not Ready.
    """
    from cli.printing.power_domain_output import HEADERS, as_data, rows

    domains = _listed(target_from(kubeconfig, context, user, timeout_s, namespace))
    lines = list(rows(domains))
    if output == "json":
        click.echo(json.dumps(as_data(domains), indent=2))
    elif lines:
        click.echo(columns(HEADERS, lines), nl=False)
    else:
        click.echo("No power domains found.", err=True)
    if any(line[HEADERS.index("READY")] != "True" for line in lines):
        ctx.exit(FAILED)


@click.command(epilog="tonnage power explain rack-7")
@click.argument("target", metavar="DOMAIN|NODE|DEVICE")
@OUTPUT
@cluster_options
@click.pass_context
def explain(
    ctx: click.Context,
    target: str,
    output: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Explain the power limits of devices: which domain is short, which class is limited first, which device disobeys.

    DEVICE is a UUID. A status lists only the 128 devices of its domain with the largest shortfall.
    """
    from cli.printing.power_domain_output import why

    found = why(_listed(target_from(kubeconfig, context, user, timeout_s, namespace)), target)
    if found is None:
        click.echo(
            f"{target} is not a power domain, and no status lists it: it is not held back, or not among those listed",
            err=True,
        )
        ctx.exit(FAILED)
    click.echo(json.dumps(found.data, indent=2) if output == "json" else "\n".join(found.lines))


def _listed(target: Target) -> "tuple[Domain, ...]":
    from cli.printing.power_domain_output import domains_of

    return domains_of(listed(target, "powerdomains", all_namespaces=True))
