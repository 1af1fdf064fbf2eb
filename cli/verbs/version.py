"""`tonnage version`."""

import platform

import click

from cluster.version import VERSION


@click.command()
def version() -> None:
    """Print the version of Tonnage, and of the Python that it runs on."""
    click.echo(f"tonnage {VERSION} (Python {platform.python_version()})")
