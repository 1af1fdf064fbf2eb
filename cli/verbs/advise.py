"""`tonnage advise`: what a cluster's idle, stranded and scattered GPUs cost, from a dump of it."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from cli.inputs.planning import Planning, decider, print_notes
from cli.inputs.price_catalogue import read_catalogue, with_prices
from cli.inputs.report_file import check_report, save_report
from cluster.errors import ConfigError, Mistake

REPLACES = "ReplicaSet"
"""Kind of controller, of Deployments, that makes a pod anew where its node is given back. Jobs would lose work."""


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage advise -f - --report advice.html")
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.Path(allow_dash=True),
              help="Dump of nodes and pods, or manifests; may be repeated. - reads standard input.")  # fmt: skip
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE",
              help="Prices of GPUs, used where the files have no GPUType. [default: old list prices]")  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a page to forward, too.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def advise(files: tuple[str, ...], prices: Path | None, report: Path | None, output: str) -> None:
    """Say in dollars what Tonnage would change on a cluster: idle nodes, stranded GPUs, fragmentation, dear types.

    Reads a dump of the cluster and nothing else, and writes nothing to it. With ModelServices and ModelProfiles (-f)
    it adds the cheapest mix for each service's demand. Amounts are prices of devices per hour: the most that following
    an advice saves, and not to be added up, as one device may be in several of them.
    """
    from cli.printing.advice_output import as_html, as_json, as_text
    from controller.objects.manifests import read_manifests
    from controller.queries.advice import advise as advice_on
    from controller.queries.usage import of_types
    from controller.snapshot.from_manifests import snapshot_from

    check_report(report)
    catalogue = read_catalogue(prices)
    manifests = read_manifests(files, sys.stdin)
    if not manifests.nodes:
        raise ConfigError(Mistake("manifests", "hold no node", "kubectl get nodes,pods -A -o json prints a dump"))
    is_own = bool(manifests.gpu_types)
    observed = snapshot_from(with_prices(manifests, catalogue), is_dump=True)
    now = observed.snapshot
    settings = Planning(policy="bestfit").on_files()
    replaced = [
        each.name for each in manifests.pods if REPLACES in {o.kind for o in each.object.metadata.owner_references}
    ]
    found = advice_on(now, of_types(now), decider(settings), replaced=replaced, limit_w=catalogue.limit_w)
    source = (
        "GPUTypes of the files" if is_own else f"{catalogue.source}; {catalogue.date} (--prices FILE replaces them)"
    )
    print_notes(note for note in observed.notes if note.reason.code == "LeftOut")
    click.echo(as_json(found, source) if output == "json" else as_text(found, source), nl=False)
    if report is not None:
        save_report(report, as_html(found, source, datetime.now(UTC)))
