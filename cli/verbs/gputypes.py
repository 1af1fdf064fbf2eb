"""`tonnage gputypes`: the GPUTypes that a cluster needs, as manifests with list prices."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, access_options, listed
from cli.inputs.options import files_option
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.objects.catalogue import NeededTypes


@click.command(epilog="tonnage gputypes --from-cluster | kubectl apply -f -")
@click.option("--from-cluster", is_flag=True, help="Read the nodes of the current cluster.")
@files_option("Dump of nodes instead; may be repeated. - reads standard input.")
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE",
              help="Catalogue instead of that of this release.")  # fmt: skip
@access_options
def gputypes(files: tuple[str, ...], prices: Path | None, access: ClusterAccess, *, from_cluster: bool) -> None:
    """Print the GPUTypes of the accelerators that a cluster's nodes have: product, slice, replica or topology.

    A node is recognised by the label of its product, else of its cloud, else by its machine type. Prices are list
    prices with their source and date; correct them to what you pay. What has no price is named, and left to you.
    """
    from controller.objects.catalogue import needed_types, read_catalogue
    from controller.objects.documents import read_documents

    if from_cluster == bool(files):
        raise click.UsageError("give either --from-cluster or -f (files)")
    if from_cluster:
        nodes: list[Any] = listed(access, "nodes", all_namespaces=True)
    else:
        read = read_documents(files, sys.stdin)
        if read.mistakes:
            raise ConfigError(tuple(read.mistakes))
        nodes = [d.content for d in read.documents if isinstance(d.content, dict) and d.content.get("kind") == "Node"]
    if not nodes:
        raise ConfigError(Mistake("nodes", "there are none", "kubectl get nodes -o json prints them"))
    click.echo("".join(_written(needed_types(nodes, read_catalogue(prices)))), nl=False)


def _written(needed: "NeededTypes") -> Iterator[str]:
    """Manifests, each with the origin of its price, and what has none as comments."""
    import yaml

    for obj in needed.objects:
        yield f"---\n# Price: {needed.prices[obj['metadata']['name']]}. Correct it to what you pay.\n"
        yield yaml.safe_dump(obj, sort_keys=False, width=120)
    for what, nodes in needed.unpriced.items():
        more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
        yield f"# Not written: {what}; on {', '.join(nodes[:3])}{more}. Write a GPUType with its memory and price.\n"
