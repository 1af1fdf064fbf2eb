"""`tonnage advise`: what a cluster's idle, stranded and scattered GPUs cost, from a dump of it."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.options import files_option, output_choice, report_option
from cli.inputs.planning import Planning, decider, print_notes
from cli.inputs.runs import check_report, save_report
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.objects.catalogue import Catalogue, NeededTypes
    from controller.objects.manifests import Manifests


def with_prices(manifests: "Manifests", catalogue: "Catalogue") -> "tuple[Manifests, NeededTypes]":
    """The manifests with GPUTypes for what their nodes have, and these; unchanged where they have GPUTypes.

    Raises ConfigError for an entry that makes no valid GPUType.
    """
    from controller.api import gpu_type
    from controller.objects.catalogue import NeededTypes, needed_types
    from controller.objects.read import Read, checked

    if manifests.gpu_types:
        return manifests, NeededTypes((), {}, {})
    needed = needed_types((node.document.content for node in manifests.nodes if node.document), catalogue)
    found, mistakes = list[Read[Any]](), list[Mistake]()
    for obj in needed.objects:
        entry = f"prices, {obj['metadata']['name']}"

        def place(path: tuple[str | int, ...], entry: str = entry) -> str:
            return f"{entry}, {'.'.join(map(str, path))}"

        made, wrong = checked(obj, gpu_type.KIND, place)
        mistakes += wrong
        found.append(Read(made, gpu_type.KIND))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return replace(manifests, by_kind={**manifests.by_kind, gpu_type.KIND: tuple(found)}), needed


REPLACES = "ReplicaSet"
"""Kind of controller, of Deployments, that makes a pod anew where its node is given back. Jobs would lose work."""


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage advise -f - --report advice.html")
@files_option("Dump of nodes and pods, or manifests; may be repeated. - reads standard input.", required=True)
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE",
              help="Prices of GPUs, used where the files have no GPUType. [default: list prices]")  # fmt: skip
@report_option("Write a page to forward, too.")
@output_choice("text", "json")
def advise(files: tuple[str, ...], prices: Path | None, report: Path | None, output: str) -> None:
    """Say in dollars what Tonnage would change on a cluster: idle nodes, stranded GPUs, fragmentation, dear types.

    Reads a dump of the cluster and nothing else, and writes nothing to it. With ModelServices and ModelProfiles (-f)
    it adds the cheapest mix for each service's demand. Amounts are prices of devices per hour: the most that following
    an advice saves, and not to be added up, as one device may be in several of them.
    """
    from cli.printing.advice_output import as_html, as_json, as_text
    from controller.objects.catalogue import read_catalogue
    from controller.objects.manifests import read_manifests
    from controller.queries.advice import advise as advice_on, unusable_devices
    from controller.queries.held_in_vain import held_in_vain
    from controller.snapshot.from_manifests import snapshot_from

    check_report(report)
    catalogue = read_catalogue(prices)
    manifests = read_manifests(files, sys.stdin)
    if not manifests.nodes:
        raise ConfigError(Mistake("manifests", "hold no node", "kubectl get nodes,pods -A -o json prints a dump"))
    is_own = bool(manifests.gpu_types)
    manifests, needed = with_prices(manifests, catalogue)
    observed = snapshot_from(manifests, is_dump=True)
    now = observed.snapshot
    settings = Planning(policy="bestfit").on_files()
    replaced = [
        each.name for each in manifests.pods if REPLACES in {o.kind for o in each.object.metadata.owner_references}
    ]
    at = datetime.now(UTC)
    unusable = unusable_devices(manifests.nodes, manifests.gpu_types)
    found = advice_on(
        now,
        decider(settings),
        replaced=replaced,
        limit_w=catalogue.limit_w,
        also=(*held_in_vain(manifests, now, at.timestamp()), *unusable),
    )
    age = ", which is long ago" if catalogue.is_old(at.date()) else ""
    source = "GPUTypes of the files" if is_own else f"{catalogue.source}; {catalogue.as_of}{age} (--prices FILE renews)"
    print_notes(f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}: no price of {what}"
                for what, names in needed.unpriced.items())  # fmt: skip
    print_notes(note for note in observed.notes if note.reason.code == "LeftOut")
    click.echo(as_json(found, source) if output == "json" else as_text(found, source), nl=False)
    if report is not None:
        save_report(report, as_html(found, source, at))
