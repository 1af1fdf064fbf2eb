"""`tonnage advise`: what a cluster's idle, stranded and scattered GPUs cost, from a dump of it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.options import files_option, output_choice, report_option
from cli.inputs.planning import Planning, decider, print_notes
from cli.inputs.runs import check_report, save_report
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.objects.manifests import Manifests


BUILT_IN = Path(__file__).with_name("prices.yaml")
FORM = "write date, source, and types with name, products, memory, pricePerHour, and watts by product where known"


@dataclass(frozen=True, slots=True)
class Catalogue:
    date: str
    source: str
    objects: tuple[Mapping[str, Any], ...]
    """GPUTypes as manifests."""
    limit_w: Mapping[str, float]
    """Power limit of a device by product, watts, where it is known."""


def read_catalogue(path: Path | None) -> Catalogue:
    """Catalogue of a file; None: that of this release. Raises ConfigError."""
    import yaml

    from controller.api.labels import API_VERSION

    file = path or BUILT_IN
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(Mistake(f"--prices {file}", f"cannot be read: {' '.join(str(error).split())}")) from error
    try:
        objects = tuple(
            {
                "apiVersion": API_VERSION,
                "kind": "GPUType",
                "metadata": {"name": each["name"]},
                "spec": {
                    "nodeLabel": {"values": list(each["products"])},
                    "memory": each["memory"],
                    "pricePerHour": price if isinstance(price := each["pricePerHour"], dict) else {"onDemand": price},
                },
            }
            for each in content["types"]
        )
        limits = {
            product: float(watts) for each in content["types"] for product, watts in each.get("watts", {}).items()
        }
        return Catalogue(str(content["date"]), str(content["source"]), objects, limits)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(Mistake(f"--prices {file}", f"is no catalogue ({error})", FORM)) from error


def with_prices(manifests: "Manifests", catalogue: Catalogue) -> "Manifests":
    """The manifests with the catalogue's types of GPUs that their nodes have; unchanged where they have GPUTypes.

    Raises ConfigError for an entry that is no valid GPUType.
    """
    if manifests.gpu_types:
        return manifests
    from dataclasses import replace

    from controller.api import gpu_type
    from controller.objects.read import Read, checked

    labels = {value for node in manifests.nodes for value in node.object.metadata.labels.values()}
    found, mistakes = list[Read[Any]](), list[Mistake]()
    for obj in catalogue.objects:
        if not labels & set(obj["spec"]["nodeLabel"]["values"]):
            continue
        entry = f"prices, {obj['metadata']['name']}"

        def place(path: tuple[str | int, ...], entry: str = entry) -> str:
            return f"{entry}, {'.'.join(map(str, path))}"

        made, wrong = checked(obj, gpu_type.KIND, place)
        mistakes += wrong
        found.append(Read(made, gpu_type.KIND))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return replace(manifests, by_kind={**manifests.by_kind, gpu_type.KIND: tuple(found)})


REPLACES = "ReplicaSet"
"""Kind of controller, of Deployments, that makes a pod anew where its node is given back. Jobs would lose work."""


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage advise -f - --report advice.html")
@files_option("Dump of nodes and pods, or manifests; may be repeated. - reads standard input.", required=True)
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE",
              help="Prices of GPUs, used where the files have no GPUType. [default: old list prices]")  # fmt: skip
@report_option("Write a page to forward, too.")
@output_choice("text", "json")
def advise(files: tuple[str, ...], prices: Path | None, report: Path | None, output: str) -> None:
    """Say in dollars what Tonnage would change on a cluster: idle nodes, stranded GPUs, fragmentation, dear types.

    Reads a dump of the cluster and nothing else, and writes nothing to it. With ModelServices and ModelProfiles (-f)
    it adds the cheapest mix for each service's demand. Amounts are prices of devices per hour: the most that following
    an advice saves, and not to be added up, as one device may be in several of them.
    """
    from cli.printing.advice_output import as_html, as_json, as_text
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
    manifests = with_prices(manifests, catalogue)
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
    source = (
        "GPUTypes of the files" if is_own else f"{catalogue.source}; {catalogue.date} (--prices FILE replaces them)"
    )
    print_notes(note for note in observed.notes if note.reason.code == "LeftOut")
    click.echo(as_json(found, source) if output == "json" else as_text(found, source), nl=False)
    if report is not None:
        save_report(report, as_html(found, source, at))
