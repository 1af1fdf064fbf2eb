"""`tonnage version`: the installed version."""

import platform

import click

from cluster.version import VERSION


@click.command()
def version() -> None:
    """Print the versions of Tonnage and of the Python that runs it."""
    click.echo(f"tonnage {VERSION} (Python {platform.python_version()})")
