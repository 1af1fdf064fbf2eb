"""`tonnage power`: power draw, limits and headroom."""

import click

from cli.printing.whole_help import Group
from cli.verbs.power_status import explain, status
from cli.verbs.simulate_power import headroom


@click.group(cls=Group)
def power() -> None:
    """Show power draw, devices held back and why, and how many more servers fit under a budget."""


power.add_command(status)
power.add_command(explain)
power.add_command(headroom)
