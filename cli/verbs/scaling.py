"""`tonnage scaling`: autoscaling of services: what a history would have cost under each policy."""

import click

from cli.verbs.scaling_backtest import backtest


@click.group()
def scaling() -> None:
    """Show what autoscaling costs, decides, and why."""


scaling.add_command(backtest)
