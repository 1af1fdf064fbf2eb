"""`tonnage scaling`: decisions of ScalingPolicies, and what a history would have cost under each policy."""

import click

from cli.printing.whole_help import Group
from cli.verbs.scaling_backtest import backtest
from cli.verbs.scaling_status import explain, status


@click.group(cls=Group)
def scaling() -> None:
    """Show what autoscaling decides and why, and what a load history would have cost under each policy."""


scaling.add_command(status)
scaling.add_command(explain)
scaling.add_command(backtest)
