"""`tonnage power`: questions about watts."""

import click

from cli.verbs.power_status import explain, status
from cli.verbs.simulate_power import headroom


@click.group()
def power() -> None:
    """Ask how much power rows draw, who is held back and why, and how many more servers they carry."""


power.add_command(status)
power.add_command(explain)
power.add_command(headroom)
