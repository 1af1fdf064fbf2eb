"""`tonnage scaling`: decisions as reported in the status of ScalingPolicies, and what a history would have cost."""

import json
import time

import click

from cli.inputs.cluster import ClusterAccess, cluster_options, listed
from cli.inputs.options import output_choice
from cli.printing.columns import columns
from cli.printing.terminal import FAILED, VerbGroup
from cli.verbs.scaling_replay import backtest


@click.group(cls=VerbGroup)
def scaling() -> None:
    """Show what autoscaling decides and why, and what a load history would have cost under each policy."""


@scaling.command(epilog="tonnage scaling status -A")
@click.option("-A", "--all-namespaces", is_flag=True, help="Policies of all namespaces.")
@output_choice("table", "json")
@cluster_options
@click.pass_context
def status(ctx: click.Context, all_namespaces: bool, output: str, access: ClusterAccess) -> None:
    """Show each ScalingPolicy: replicas now and recommended, load, forecast, and what limits the decision.

    Exits with 1 if a policy that is not off is not Ready.
    """
    from cli.printing.scaling_output import HEADERS, as_data, is_in_order, policies_of, rows

    policies = policies_of(listed(access, "scalingpolicies", all_namespaces=all_namespaces))
    if output == "json":
        click.echo(json.dumps([as_data(each) for each in policies], indent=2))
    elif policies:
        click.echo(columns(HEADERS, rows(policies)), nl=False)
    else:
        click.echo("No scaling policies found.", err=True)
    if not all(map(is_in_order, policies)):
        ctx.exit(FAILED)


@scaling.command(epilog="tonnage scaling explain chat")
@click.argument("name", metavar="NAME")
@output_choice("table", "json")
@cluster_options
@click.pass_context
def explain(ctx: click.Context, name: str, output: str, access: ClusterAccess) -> None:
    """Explain a ScalingPolicy's decision: load, forecast, lead time, limits, and the cost of one replica fewer."""
    from cli.printing.scaling_output import as_data, explanation, policies_of

    policies = policies_of(listed(access, "scalingpolicies"))
    found = next((each for each in policies if each.name == name.removeprefix("ScalingPolicy/")), None)
    if found is None:
        click.echo(f"there is no ScalingPolicy {name} in this namespace", err=True)
        ctx.exit(FAILED)
    lines = [json.dumps(as_data(found), indent=2)] if output == "json" else explanation(found, time.time())
    click.echo("\n".join(lines))


scaling.add_command(backtest)
