"""`tonnage examples`: the manifests of the documentation, and the chart, as files of one's own."""

from pathlib import Path
from shutil import copytree

import click

from cli.inputs.shipped import FOLDERS, shipped
from cluster.errors import ConfigError, Mistake


@click.command(epilog="tonnage examples ./tonnage && tonnage plan -f ./tonnage/examples")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def examples(folder: Path) -> None:
    """Copy examples, the manifests of the cluster walk and the Helm chart into DIR.

    Existing files are never replaced.
    """
    taken = [str(folder / name) for name in FOLDERS if (folder / name).exists()]
    if taken:
        raise ConfigError(Mistake(taken[0], "exists already", "name another folder"))
    for name in FOLDERS:
        copytree(shipped(name), folder / name)
        click.echo(folder / name)
