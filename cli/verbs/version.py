"""`tonnage version`: the installed version."""

import click

from cli.main import VERSION_LINE


@click.command()
def version() -> None:
    """Print the versions of Tonnage and of the Python that runs it."""
    click.echo(VERSION_LINE)
