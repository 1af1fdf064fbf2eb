"""`tonnage version`, `crds`, `completion` and `examples`: what an installation holds."""

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cli.main import VERSION_LINE, tonnage
from cluster.errors import ConfigError, Mistake, TonnageError

SHELLS = ("bash", "fish", "zsh")
WHEEL = Path(__file__).parents[1] / "shipped"
SOURCES = Path(__file__).parents[2]
FOLDERS = {"examples": "examples", "cluster-walk": "docs/cluster-walk", "chart": "helm/tonnage"}
"""Name in a wheel → place in the source tree (setup.py)."""


@click.command()
def version() -> None:
    """Print the versions of Tonnage and of the Python that runs it."""
    click.echo(VERSION_LINE)


@click.command(epilog="tonnage crds | kubectl apply --server-side -f -")
def crds() -> None:
    """Print the CustomResourceDefinitions of Tonnage's kinds, as YAML."""
    import yaml

    from controller.api.crds import crd
    from controller.api.kinds import OWN_KINDS

    click.echo(yaml.safe_dump_all([crd(kind) for kind in OWN_KINDS], sort_keys=False, width=120), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  source <(tonnage completion bash)
    zsh:   source <(tonnage completion zsh)
    fish:  tonnage completion fish | source
    """
    made = get_completion_class(shell)
    if made is None:
        raise TonnageError(f"completing for {shell}: not supported by the installed click; use one of {SHELLS}")
    source = made(tonnage, {}, "tonnage", "_TONNAGE_COMPLETE")
    click.echo(source.source_template % source.source_vars())


@click.command(epilog="tonnage examples ./tonnage && tonnage plan -f ./tonnage/examples")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def examples(folder: Path) -> None:
    """Copy examples, the manifests of the cluster walk and the Helm chart into DIR.

    Existing files are never replaced.
    """
    from shutil import copytree

    taken = [str(folder / name) for name in FOLDERS if (folder / name).exists()]
    if taken:
        raise ConfigError(Mistake(taken[0], "exists already", "name another folder"))
    for name, source in FOLDERS.items():
        found = next((each for each in (WHEEL / name, SOURCES / source) if each.is_dir()), None)
        if found is None:  # as in the image
            raise TonnageError(f"this installation has no {name}; pip install tonnage has them")
        copytree(found, folder / name)
        click.echo(folder / name)
