"""`tonnage crds`: CustomResourceDefinitions of this release, to install without the chart."""

import click


@click.command(epilog="tonnage crds | kubectl apply --server-side -f -")
def crds() -> None:
    """Print the CustomResourceDefinitions of Tonnage's kinds, as YAML."""
    import yaml

    from controller.api.crds import crd
    from controller.api.kinds import OWN_KINDS

    click.echo(yaml.safe_dump_all([crd(kind) for kind in OWN_KINDS], sort_keys=False, width=120), nl=False)
