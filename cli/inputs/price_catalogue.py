"""Catalogue of GPU prices: the types of a fleet whose files have no GPUType, with date and source of the prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    file = path or BUILT_IN
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(Mistake(f"--prices {file}", f"cannot be read: {' '.join(str(error).split())}")) from error
    try:
        objects = tuple(_gpu_type(each) for each in content["types"])
        limits = {
            product: float(watts) for each in content["types"] for product, watts in each.get("watts", {}).items()
        }
        return Catalogue(str(content["date"]), str(content["source"]), objects, limits)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(Mistake(f"--prices {file}", f"is no catalogue ({error})", FORM)) from error


def _gpu_type(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    price = entry["pricePerHour"]
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "GPUType",
        "metadata": {"name": entry["name"]},
        "spec": {
            "nodeLabel": {"values": list(entry["products"])},
            "memory": entry["memory"],
            "pricePerHour": price if isinstance(price, dict) else {"onDemand": price},
        },
    }


def _place(entry: str, path: tuple[object, ...]) -> str:
    return f"{entry}, {'.'.join(map(str, path))}"


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
        place = f"prices, {obj['metadata']['name']}"
        for each in checked(obj, gpu_type.KIND, partial(_place, place)):
            if isinstance(each, Mistake):
                mistakes.append(each)
            else:
                found.append(Read(each, gpu_type.KIND))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return replace(manifests, by_kind={**manifests.by_kind, gpu_type.KIND: tuple(found)})
