"""Catalogue of accelerators: the GPUTypes that the nodes of a cluster need, by their labels, with list prices. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake
from cluster.nodes import HOSTNAME_LABEL
from controller.api import notation
from controller.api.gpu_type import GPUType
from controller.api.labels import API_VERSION
from controller.objects.accelerators import COUNT_LABELS, VIEWS, is_device
from controller.objects.documents import at
from placement.roofline import Chip

BUILT_IN = Path(__file__).with_name("catalogue.yaml")
FORM = "write date, source, and types with name, products, memory, pricePerHour, and watts where known"
PCIE_GB_PER_S = 32.0
"""Of 16 lanes of the fourth generation, each way: between devices that have no other link."""
OLD_DAYS = 180
"""Age at which prices are said to be old. Chosen: AWS lowered some by 44 % within half a year."""
ENDINGS = re.compile(r"-(?:MIG-(?P<slice>.+)|SHARED)$")
"""What NVIDIA's discovery appends to the product of GPUs that are cut or shared."""
SLICE = re.compile(r"(?:.*/mig-)?(\d+)g\.(\d+)gb(.*)")
PARTITION = re.compile(r".*/([sdqc]px)_nps\d")
PARTITIONS = {"spx": 1, "dpx": 2, "qpx": 4, "cpx": 8}
"""Parts of an MI300 by its compute partition. Source: AMD's device plugin, naming strategy `mixed`."""
SLICE_LABELS = ("cloud.google.com/gke-gpu-partition-size",)
REPLICA_LABELS = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
SHARED_BY_HAMI = re.compile(r"[^,:]+,(\d+),\d+,\d+,([^,]+),")
"""Replicas and product of a device in HAMi's annotation of its node."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """Devices of one resource of a node, as the type of an entry."""

    name: str
    entry: Mapping[str, Any]
    label: tuple[str, str]
    """Label by which they were recognised."""
    resource: str
    provider: str
    selector: Mapping[str, str] = field(default_factory=dict)
    parts: int = 1
    """Such parts in a physical device."""
    share: float = 1.0
    memory_share: float = 1.0
    per_pod: tuple[int, ...] = ()

    @property
    def price(self) -> dict[str, Any] | None:
        """Price as `pricePerHour` of a GPUType has it, and whose it is; None where none is known."""
        own, by_provider = self.entry.get("pricePerHour"), self.entry.get("prices") or {}
        if own is None and by_provider:
            name = self.provider if self.provider in by_provider else next(iter(by_provider))
            own = {**by_provider[name], "of": name}
        price = dict(own) if isinstance(own, Mapping) else {"onDemand": own} if own is not None else None
        if price is None:
            return None
        parts = {each: price[each] for each in ("onDemand", "spot", "committed", "owned") if each in price}
        if self.parts > 1:
            for key, each in parts.items():
                if isinstance(each, Mapping):  # of an owned device
                    watts = each.get("watts", 0) / self.parts
                    parts[key] = {**each, "capital": each["capital"] / self.parts, "watts": watts}
                else:
                    parts[key] = round(each / self.parts, 6)
        return {**price, **parts}


@dataclass(frozen=True, slots=True)
class Catalogue:
    as_of: str
    """Year and month of its prices, as `2025-06`."""
    source: str
    types: tuple[Mapping[str, Any], ...]
    labels: Mapping[str, tuple[str, ...]]
    """Keys of the labels that each of an entry's lists of values is of, those that say most first."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)
    sheets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Memory bandwidth in GB/s and dense TFLOPS at 16 and 8 bits of an entry's devices, by its name."""

    def chip(self, name: str, labels: Mapping[str, str] | None = None) -> Chip | None:
        """Data sheet of the devices of that name, or of the entry that these labels of a node mean; None: unknown."""
        entry = next((each for each in self.types if each["name"] == name), None)
        found = self._entry(labels, {}) if labels else None
        entry = found[0] if found else entry
        sheet = self.sheets.get(entry["name"]) if entry else None
        if entry is None or sheet is None:
            return None
        bandwidth, flops, *more = (float(each) for each in sheet)
        link = re.search(r"(\d+) GB/s", str(entry.get("links", "")))
        each_way = float(link[1]) / 2 if link else PCIE_GB_PER_S
        memory, limit = float(notation.quantity(entry["memory"])), entry.get("watts") or 0
        flops_8bit = (more[0] if more else flops) * 1e12
        return Chip(memory, bandwidth * 1e9, flops * 1e12, flops_8bit, float(limit), each_way * 1e9)

    def chip_of(self, written: GPUType) -> Chip | None:
        """Data sheet of the devices of a GPUType; None: unknown, as for parts of a device."""
        name, label = written.metadata.name, written.spec.node_label
        return self.chip(name, {label.key: label.values[0]}) if written.spec.share == 1 else None

    @property
    def limit_w(self) -> dict[str, float]:
        """Power limit of a device by product, watts, where it is known."""
        found: dict[str, float] = {}
        for each in self.types:
            watts = each.get("watts") or {}
            found |= watts if isinstance(watts, Mapping) else dict.fromkeys(each.get("products", ()), float(watts))
        return found

    def is_old(self, today: date) -> bool:
        year, month = (int(part) for part in (*self.as_of.split("-"), "1")[:2])
        return (today - date(year, month, 1)).days > OLD_DAYS

    def recognised(self, node: Mapping[str, Any]) -> Iterator[Recognised]:
        """Types of the devices that a node offers, or has by its capacity, one for each resource that is known."""
        labels = at(node, "metadata", "labels") or {}
        found = self._entry(labels, node)
        if found is None:
            return
        entry, label = found
        status = at(node, "status") or {}
        amounts = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
        wanted = entry.get("resource", "nvidia.com/gpu")
        offered = {
            r: n
            for r in sorted(amounts)
            if (is_device(r) or fnmatchcase(r, wanted)) and (n := notation.whole_or_zero(amounts[r]))
        }
        domain = wanted.partition("/")[0]
        keys = (str(at(node, "spec", "providerID") or ""), *labels)
        provider = next((name for start, name in self.providers.items() if any(k.startswith(start) for k in keys)), "")
        for resource in [r for r in offered if r.startswith(f"{domain}/")] or [wanted]:
            whole = Recognised(entry["name"], entry, label, resource, provider)
            yield _part(whole, labels, offered.get(resource, 0), node)

    def _entry(
        self, labels: Mapping[str, str], node: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], tuple[str, str]] | None:
        """Entry of a node's devices, with the label that names it."""
        named = [(group, (key, labels[key])) for group, keys in self.labels.items() for key in keys if key in labels]
        if HOSTNAME_LABEL in labels and (shared := SHARED_BY_HAMI.match(_by_hami(node))):
            product = shared[2].removeprefix("NVIDIA-").replace(" ", "-")
            host = (HOSTNAME_LABEL, labels[HOSTNAME_LABEL])
            named += [("products", (HOSTNAME_LABEL, each)) for each in (product, f"NVIDIA-{product}")]
        for group, (key, value) in named:
            bare = ENDINGS.sub("", value).lower()
            for entry in self.types:
                if any(fnmatchcase(bare, str(each).lower()) for each in entry.get(group) or ()):
                    return entry, host if key == HOSTNAME_LABEL else (key, value)
        return None


def _part(whole: Recognised, labels: Mapping[str, str], offered: int, node: Mapping[str, Any]) -> Recognised:
    """The same, as the slices or replicas that its node has of the devices, or the chips of a topology."""
    ending = ENDINGS.search(whole.label[1])
    selector = {key: labels[key] for key in SLICE_LABELS if key in labels}
    profile = SLICE.fullmatch(whole.resource) or SLICE.fullmatch(
        (ending and ending["slice"]) or next(iter(selector.values()), "")
    )
    if profile:
        slices, memory = int(whole.entry.get("slices", 7)), notation.whole(notation.quantity(whole.entry["memory"]))
        compute, gigabytes = int(profile[1]), int(profile[2])
        eighths = 8 if slices == 7 else slices
        memory_share = min(1.0, max(1, round(gigabytes * eighths * 2**30 / memory)) / eighths)
        parts = max(1, min(slices // max(compute, 1), int(1 / memory_share)))
        return replace(
            whole,
            name=f"{whole.name}-{profile[1]}g.{profile[2]}gb{profile[3].replace('+', '-').replace('.', '-')}",
            selector=selector,
            parts=parts,
            share=min(1.0, compute / slices),
            memory_share=memory_share,
        )
    if partition := PARTITION.fullmatch(whole.resource):
        parts = PARTITIONS[partition[1]]
        name = f"{whole.name}-{partition[1]}"
        return replace(whole, name=name, parts=parts, share=1 / parts, memory_share=1 / parts)
    replicas = {key: labels[key] for key in REPLICA_LABELS if notation.whole_or_zero(labels.get(key, "")) > 1}
    of_each = max(map(notation.whole_or_zero, replicas.values()), default=1)
    if of_each == 1 and (hami := SHARED_BY_HAMI.match(_by_hami(node))):
        of_each = int(hami[1])
    is_named_so = bool(ending) or whole.resource.endswith(".shared")
    if of_each == 1 and (is_named_so or HOSTNAME_LABEL in labels):
        devices = max((notation.whole_or_zero(labels.get(key, "")) for key in COUNT_LABELS), default=0)
        of_each = offered // devices if devices and offered % devices == 0 else 1
        if of_each > 1 and not is_named_so:  # the product's label is that of whole devices as well
            whole = replace(whole, label=(HOSTNAME_LABEL, labels[HOSTNAME_LABEL]))
            replicas = {key: labels[key] for key in COUNT_LABELS if key in labels}
    if of_each > 1:
        return replace(
            whole,
            name=f"{whole.name}-shared-{of_each}",
            selector=replicas,
            parts=of_each,
            share=1 / of_each,
            memory_share=1 / of_each,
            per_pod=(1,),
        )
    if whole.entry.get("isWhole") and offered:
        topology = labels.get(TOPOLOGY_LABEL)
        selector = {TOPOLOGY_LABEL: topology} if topology else {}
        name = f"{whole.name}-{topology}" if topology else whole.name
        return replace(whole, name=name, selector=selector, per_pod=(offered,))
    return whole


def _by_hami(node: Mapping[str, Any]) -> str:
    return str(at(node, "metadata", "annotations", "hami.io/node-nvidia-register") or "")


@dataclass(frozen=True, slots=True)
class NeededTypes:
    """GPUTypes that the nodes of a cluster need."""

    objects: tuple[dict[str, Any], ...]
    """As manifests, by name."""
    prices: Mapping[str, str]
    """Whose price each has, and of when, by name."""
    unpriced: Mapping[str, tuple[str, ...]]
    """Nodes whose devices no entry knows, or whose entry has no price, by what is known of them."""


def needed_types(nodes: Iterable[Mapping[str, Any]], catalogue: Catalogue) -> NeededTypes:
    """GPUTypes of all devices of these nodes (as the API server has them)."""
    alike: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Recognised]] = {}
    unpriced: dict[str, list[str]] = {}
    for node in nodes:
        name, found = str(at(node, "metadata", "name")), list(catalogue.recognised(node))
        for each in found:
            if each.price is None:
                memory = each.entry["memory"]
                size = f"{memory} each" if each.parts == 1 else f"{each.parts} of a device of {memory}"
                words = f"{each.name} ({size}), which has no list price"
                unpriced.setdefault(words, []).append(name)
            else:
                alike.setdefault((each.name, each.resource, tuple(sorted(each.selector.items()))), []).append(each)
        known = {each.resource for each in found}
        amounts = {**(at(node, "status", "capacity") or {}), **(at(node, "status", "allocatable") or {})}
        for resource in sorted(amounts):
            is_unknown = resource in VIEWS if known else is_device(resource)
            if is_unknown and not known & amounts.keys() and notation.whole_or_zero(amounts[resource]):
                unpriced.setdefault(f"{resource}, of no type that the catalogue has", []).append(name)
    objects, prices = [], dict[str, str]()
    for (bare, *_), same in sorted(alike.items()):
        # Slices of one size may be a resource of their own on some nodes, and not on others.
        name = next(free for n in count(1) if (free := f"{bare}-{n}" if n > 1 else bare) not in prices)
        objects.append(_manifest(name, same))
        price = same[0].price or {}
        whose = {**catalogue.sources.get(price.get("of", ""), {}), **price}
        prices[name] = f"{whose.get('source', catalogue.source)}; {whose.get('date', catalogue.as_of)}"
    return NeededTypes(tuple(objects), prices, {words: tuple(names) for words, names in sorted(unpriced.items())})


def _manifest(name: str, found: list[Recognised]) -> dict[str, Any]:
    """GPUType of devices of one name; where they come from several providers, with the price of most of them."""
    most = max(found, key=lambda each: sum(other.provider == each.provider for other in found))
    values: dict[str, set[str]] = {}
    for each in found:
        values.setdefault(each.label[0], set()).add(each.label[1])
    first, *others = [{"key": key, "values": sorted(each)} for key, each in sorted(values.items())]
    price = {k: v for k, v in (most.price or {}).items() if k in ("onDemand", "spot", "committed", "owned")}
    memory = int(notation.quantity(most.entry["memory"]) * Decimal(str(most.memory_share)))
    spec: dict[str, Any] = {"nodeLabel": first}
    if others:
        spec["otherLabels"] = others
    if most.selector:
        spec["nodeSelector"] = dict(most.selector)
    if most.resource != "nvidia.com/gpu":
        spec["resourceName"] = most.resource
    spec["memory"] = most.entry["memory"] if most.memory_share == 1 else f"{memory // 2**20}Mi"
    if most.share != 1:
        spec["share"] = round(most.share, 6)
    if most.per_pod:
        spec["devicesPerPod"] = sorted({n for each in found for n in each.per_pod})
    spec["pricePerHour"] = price
    return {"apiVersion": API_VERSION, "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


@cache
def read_catalogue(path: Path | None) -> Catalogue:
    """Catalogue of a file; None: that of this release. Raises ConfigError."""
    import yaml

    file = path or BUILT_IN
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(Mistake(f"--prices {file}", f"cannot be read: {' '.join(str(error).split())}")) from error
    try:
        types = tuple(content["types"])
        for each in types:
            notation.quantity(each["memory"])
            if not (each["name"] and any(each.get(group) for group in ("products", "cloud", "instances"))):
                raise ValueError(f"{each['name']} names no label's value")
        labels = content.get("labels") or (read_catalogue(None).labels if path else {})
        return Catalogue(
            str(content["date"]),
            str(content["source"]),
            types,
            {group: tuple(keys) for group, keys in labels.items()},
            content.get("sources") or {},
            content.get("providers") or {},
            content.get("sheets") or (read_catalogue(None).sheets if path else {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(Mistake(f"--prices {file}", f"is no catalogue ({error})", FORM)) from error
