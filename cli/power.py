"""`tonnage power`: questions about watts."""

import click

from cli.simulate_power import headroom


@click.group()
def power() -> None:
    """Ask how much power rows draw, and how many more servers they carry."""


power.add_command(headroom)
