"""`tonnage scaling status` and `tonnage scaling explain`: decisions as reported in the status of ScalingPolicies."""

import json
import time
from typing import TYPE_CHECKING

import click

from cli.inputs.cluster import Impersonated, Target, cluster_options, listed, target_from
from cli.printing.columns import columns
from cli.printing.errors import FAILED

if TYPE_CHECKING:
    from cli.printing.scaling_output import Policy

OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.command(epilog="tonnage scaling status -A")
@click.option("-A", "--all-namespaces", is_flag=True, help="Policies of all namespaces.")
@OUTPUT
@cluster_options
@click.pass_context
def status(
    ctx: click.Context,
    all_namespaces: bool,
    output: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Show each ScalingPolicy: replicas now and recommended, load, forecast, and what limits the decision.

    Exits with 1 if a policy that is not off is not Ready.
    """
    from cli.printing.scaling_output import HEADERS, as_data, is_in_order, rows

    policies = _listed(target_from(kubeconfig, context, user, timeout_s, namespace), all_namespaces=all_namespaces)
    if output == "json":
        click.echo(json.dumps([as_data(each) for each in policies], indent=2))
    elif policies:
        click.echo(columns(HEADERS, rows(policies)), nl=False)
    else:
        click.echo("No scaling policies found.", err=True)
    if not all(map(is_in_order, policies)):
        ctx.exit(FAILED)


@click.command(epilog="tonnage scaling explain chat")
@click.argument("name", metavar="NAME")
@OUTPUT
@cluster_options
@click.pass_context
def explain(
    ctx: click.Context,
    name: str,
    output: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Explain a ScalingPolicy's decision: load, forecast, lead time, limits, and the cost of one replica fewer."""
    from cli.printing.scaling_output import as_data, explanation

    policies = _listed(target_from(kubeconfig, context, user, timeout_s, namespace), all_namespaces=False)
    found = next((each for each in policies if each.name == name.removeprefix("ScalingPolicy/")), None)
    if found is None:
        click.echo(f"there is no ScalingPolicy {name} in this namespace", err=True)
        ctx.exit(FAILED)
    lines = [json.dumps(as_data(found), indent=2)] if output == "json" else explanation(found, time.time())
    click.echo("\n".join(lines))


def _listed(target: Target, *, all_namespaces: bool) -> "tuple[Policy, ...]":
    from cli.printing.scaling_output import policies_of

    return policies_of(listed(target, "scalingpolicies", all_namespaces=all_namespaces))
