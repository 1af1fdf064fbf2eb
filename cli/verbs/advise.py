"""`tonnage advise`: what a cluster's idle, stranded and scattered GPUs cost, from a dump of it."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from cli.inputs.cluster import ClusterAccess, access_options
from cli.inputs.options import files_option, output_choice, report_option
from cli.inputs.planning import Planning, decider, dump_of, one_origin, packer_of, print_notes
from cli.inputs.runs import check_report, save_report
from cluster.collector import paused_collector
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.loops.autoscaler.prometheus import Series
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


SHOWN_AFTER_S = 2.0
"""Seconds after which progress is told."""
CHUNK = 16 * 2**20
"""Bytes that are read at once."""
LOOKBACK_S = 300.0
"""Age of the last sample that counts, as Prometheus' own."""


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage advise -f - --report advice.html")
@files_option("Dump of nodes and pods, or manifests; may be repeated. - reads standard input. [default: the cluster]")
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE",
              help="Prices of GPUs, used where the files have no GPUType. [default: list prices]")  # fmt: skip
@click.option(
    "--prometheus",
    metavar="URL|FILE",
    help="Server, or its saved answer to this query, that says what pods use of their devices.",
)
@click.option("--team-label", default="team", show_default=True, metavar="KEY", help="Label of pods to add up by.")
@report_option("Write a page to forward, too.")
@output_choice("text", "json")
@access_options
def advise(
    files: tuple[str, ...],
    prices: Path | None,
    prometheus: str | None,
    team_label: str,
    report: Path | None,
    output: str,
    access: ClusterAccess,
) -> None:
    """Say in dollars what Tonnage would change on a cluster, who holds GPUs in vain, and how to apply it.

    Reads the cluster, or a dump of it (-f), and writes nothing to it. Each advice was carried out by planning on
    the dump, so its amount is what it saves, and those that save add up. With ModelServices and ModelProfiles (-f) it
    adds the cheapest mix for each service's demand. Without --prometheus, idle means that no pod asks for it.
    """
    from cli.printing.advice_output import as_html, as_json, as_text
    from controller.objects.catalogue import read_catalogue
    from controller.objects.documents import STDIN
    from controller.objects.manifests import read_manifests
    from controller.queries.advice import advise as advice_on, unusable_devices
    from controller.queries.holders import holders, replaced_in
    from controller.snapshot.from_manifests import snapshot_from

    one_origin(files, access)
    check_report(report)
    catalogue = read_catalogue(prices)
    used_share = used_share_from(prometheus) if prometheus else None
    progress = Progress()
    with paused_collector(freezes=True):
        dump = Chunks(sys.stdin, progress) if files else dump_of(access)
        manifests = read_manifests(files or (STDIN,), dump)
        if not manifests.nodes:
            raise ConfigError(Mistake("manifests", "hold no node", "kubectl get nodes,pods -A -o json prints a dump"))
        progress.tell(f"read {len(manifests.nodes):,} nodes and {len(manifests.pods):,} pods")
        is_own = bool(manifests.gpu_types)
        manifests, needed = with_prices(manifests, catalogue)
        observed = snapshot_from(manifests, is_dump=True)
        progress.tell("planning what could change")
        at = dumped_at(manifests)
        settings = Planning(policy="bestfit").on_files()
        found = advice_on(
            observed.snapshot,
            decider(settings),
            packer_of(settings),
            held=holders(manifests.pods, observed.snapshot, at.timestamp(), used_share, team_label),
            replaced=replaced_in(manifests.pods),
            own={each.name for each in manifests.pods if each.object.belongs_to_its_node},
            unusable=tuple(unusable_devices(manifests.nodes, manifests.gpu_types)),
            limit_w=catalogue.limit_w,
        )
    age = ", which is long ago" if catalogue.is_old(at.date()) else ""
    source = "GPUTypes of the files" if is_own else f"{catalogue.source}; {catalogue.as_of}{age} (--prices FILE renews)"
    print_notes(f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}: no price of {what}"
                for what, names in needed.unpriced.items())  # fmt: skip
    print_notes(note for note in observed.notes if note.reason.code == "LeftOut")
    click.echo(as_json(found, source, at) if output == "json" else as_text(found, source, at), nl=False)
    if report is not None:
        save_report(report, as_html(found, source, at))


def dumped_at(manifests: "Manifests") -> datetime:
    """When the dump was made: the last heartbeat of a node, or now where there is none."""
    from controller.api.notation import instant_or_none
    from controller.objects.documents import at

    beats = (  # in one form, so that the greatest is the last
        str(condition.get("lastHeartbeatTime") or "")
        for node in manifests.nodes
        for condition in at(node.document.content if node.document else {}, "status", "conditions") or ()
    )
    last_s = instant_or_none(max(beats, default=None))
    return datetime.now(UTC) if last_s is None else datetime.fromtimestamp(last_s, UTC)


def used_share_from(place: str) -> dict[str, float]:
    """Mean utilisation of pods' devices, from a server or its saved answer. Raises ConfigError."""
    from controller.queries.holders import QUERY, used_share_by_pod

    return used_share_by_pod((each.labels, each.points[-1][1]) for each in asked_of(place, QUERY, time.time()))


def asked_of(place: str, query: str, at_s: float) -> "list[Series]":
    """Answer to a query by a server, or as it was saved; series with values. Raises ConfigError."""
    import asyncio

    from controller.loops.autoscaler.prometheus import PrometheusClient, SourceError, series_in
    from controller.settings import PrometheusSettings

    async def asked() -> "Iterable[Series]":
        access = PrometheusSettings(timeout_s=60.0, most_bytes=64 * 2**20).model_copy(update={"url": place})
        client = PrometheusClient(access, time.monotonic)
        try:
            return await client.now(query, "", at_s, LOOKBACK_S)
        finally:
            await client.close()

    try:
        is_server = place.startswith(("http://", "https://"))
        found = asyncio.run(asked()) if is_server else series_in(Path(place).read_bytes())
        return [each for each in found if each.points]
    except (SourceError, OSError) as error:
        remedy = f"save the answer of /api/v1/query to this query: {query}"
        raise ConfigError(Mistake(f"--prometheus {place}", str(error), remedy)) from error


class Progress:
    """Words on standard error about a command that takes seconds; none about a quick one."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def tell(self, words: str) -> None:
        if time.monotonic() - self._began_s >= SHOWN_AFTER_S:
            click.echo(f"{words} ...", err=True)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Bytes that are read in parts, with the progress told."""

    text: TextIO
    progress: Progress

    def read(self) -> bytes:
        parts, size = [], 0
        while part := self.text.buffer.read(CHUNK):
            parts.append(part)
            size += len(part)
            if len(parts) % 8 == 0:
                self.progress.tell(f"read {size / 1e6:,.0f} MB")
        return b"".join(parts)
