"""The tree that PowerDomain objects and node labels say: who feeds whom, which node draws through what, in which class.

Pure. Objects come and go one by one, so most of what does not fit is told and counted at its worst; only what would
take a budget out of force unseen (an unknown feed, a circle) stops the new tree, and the one before stays.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cluster.errors import Mistake
from controller.api.power_domain import PowerDomainSpec, ServiceClass
from controller.api.suggestions import meant
from controller.objects.read import place_in_cluster

CLASS_LABEL = "tonnage.dev/power-class"
"""On a node: the name of its class of service; it goes before the priority of the node's pods."""
DEFAULT_CLASS = ServiceClass(name="all", rank=0)
"""Of nodes for which no domain above them names classes."""
SHOWN_NODES = 3
"""Nodes named in one mistake; a label that was misspelt is on hundreds."""

Domains = Mapping[str, PowerDomainSpec]


@dataclass(frozen=True, slots=True)
class PoweredNode:
    """What of a node matters to watts."""

    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    priority: int | None = None
    """Of its most important pod that holds GPUs; None: no pod does."""


@dataclass(frozen=True, slots=True)
class PowerTree:
    """Where every node draws."""

    feeds_of_node: Mapping[str, tuple[str, ...]]
    """Node → the domains that it draws from directly: one, or several where labels contradict each other, and then each
    must be able to carry it whole. Nodes in no domain are missing."""
    class_of_node: Mapping[str, ServiceClass]
    observed: frozenset[str]
    """Nodes whose limits are left alone: a domain above them has mode observe."""
    fatal: tuple[Mistake, ...]
    """With these the tree cannot be used."""
    mistakes: tuple[Mistake, ...]
    """Told; the tree counts what they concern at its worst."""


def power_tree(domains: Domains, nodes: Mapping[str, PoweredNode]) -> PowerTree:
    """domains: by name. nodes: all of the cluster, by name."""
    fatal = (*_unknown_feeds(domains), *_circles(domains), *_names_of_nodes(domains, nodes))
    above = {name: lineage(domains, name) for name in domains}
    matched = _matched(domains, nodes)
    # The innermost of domains of which one feeds the other: labels on the row and on the rack are no contradiction.
    feeds = {
        node: tuple(name for name in names if not any(name in above[other][1:] for other in names))
        for node, names in matched.items()
    }
    mistakes = (*_torn_nodes(feeds), *_unknown_classes(domains, above, feeds, nodes))
    return PowerTree(
        feeds_of_node=feeds,
        class_of_node={
            node: class_of(classes_above(domains, above, names), nodes[node]) for node, names in feeds.items()
        },
        observed=frozenset(
            node
            for node, names in feeds.items()
            if any(domains[each].mode == "observe" for name in names for each in above[name])
        ),
        fatal=fatal,
        mistakes=mistakes,
    )


def lineage(domains: Domains, name: str) -> tuple[str, ...]:
    """The domain and all that it draws through, the nearest first; each once. Ends also where feeds run in a circle."""
    found = {name: None}
    for each in (reached := [name]):  # grows while it is walked
        for feed in domains[each].feeds:
            if feed.name in domains and feed.name not in found:
                found[feed.name] = None
                reached.append(feed.name)
    return tuple(found)


def classes_above(
    domains: Domains, above: Mapping[str, tuple[str, ...]], names: tuple[str, ...]
) -> tuple[ServiceClass, ...]:
    """The classes of the domain nearest to the node that has some."""
    nearest = (domains[each].classes for name in names for each in above[name] if domains[each].classes)
    return tuple(next(nearest, (DEFAULT_CLASS,)))


def class_of(classes: tuple[ServiceClass, ...], node: PoweredNode) -> ServiceClass:
    """By the node's label; else by the priority of its pods; else the class that gives watts first."""
    named = next((each for each in classes if each.name == node.labels.get(CLASS_LABEL)), None)
    if named is not None:
        return named
    reached = [
        each
        for each in classes
        if each.min_priority is not None and node.priority is not None and node.priority >= each.min_priority
    ]
    if reached:
        return max(reached, key=lambda each: (each.min_priority or 0, -each.rank))
    free = [each for each in classes if each.min_priority is None]
    return max(free or classes, key=lambda each: each.rank)


def _matched(domains: Domains, nodes: Mapping[str, PoweredNode]) -> dict[str, tuple[str, ...]]:
    by_label: dict[str, dict[str, list[str]]] = {}
    for name in sorted(domains):
        if (asked := domains[name].nodes) is not None:
            for value in asked.values:
                by_label.setdefault(asked.key, {}).setdefault(value, []).append(name)
    found = {}
    for node, known in sorted(nodes.items()):
        names = [name for key, values in by_label.items() for name in values.get(known.labels.get(key, ""), ())]
        if names:
            found[node] = tuple(dict.fromkeys(names))
    return found


def _unknown_feeds(domains: Domains) -> Iterator[Mistake]:
    for name, spec in sorted(domains.items()):
        for number, feed in enumerate(spec.feeds):
            if feed.name not in domains:
                place = place_in_cluster(f"PowerDomain/{name}", ("spec", "feeds", number, "name"))
                yield Mistake(place, f"there is no PowerDomain {feed.name!r}", meant(feed.name, domains))


def _circles(domains: Domains) -> Iterator[Mistake]:
    for name, spec in sorted(domains.items()):
        if any(name in lineage(domains, feed.name) for feed in spec.feeds if feed.name in domains):
            place = place_in_cluster(f"PowerDomain/{name}", ("spec", "feeds"))
            yield Mistake(place, "draws through itself", "remove one feed of the circle")


def _names_of_nodes(domains: Domains, nodes: Mapping[str, PoweredNode]) -> Iterator[Mistake]:
    """Nodes are domains too: their agents hold their leases."""
    for name in sorted(domains.keys() & nodes.keys()):
        place = place_in_cluster(f"PowerDomain/{name}", ("metadata", "name"))
        yield Mistake(place, "is also the name of a Node", "name the domain by its place, such as rack-7")


def _torn_nodes(feeds: Mapping[str, tuple[str, ...]]) -> Iterator[Mistake]:
    torn: dict[tuple[str, ...], list[str]] = {}
    for node, names in feeds.items():
        if len(names) > 1:
            torn.setdefault(names, []).append(node)
    for names, nodes in torn.items():
        for name in names:
            others = " and ".join(other for other in names if other != name)
            problem = f"{_several(nodes)} also in {others}, and neither feeds the other: each counts it whole"
            remedy = "label it into one; a rack that is fed twice is one domain with two feeds"
            yield Mistake(place_in_cluster(f"PowerDomain/{name}", ("spec", "nodes")), problem, remedy)


def _unknown_classes(
    domains: Domains,
    above: Mapping[str, tuple[str, ...]],
    feeds: Mapping[str, tuple[str, ...]],
    nodes: Mapping[str, PoweredNode],
) -> Iterator[Mistake]:
    wrong: dict[tuple[str, str], list[str]] = {}
    for node, names in feeds.items():
        asked = nodes[node].labels.get(CLASS_LABEL)
        if asked and asked not in {each.name for each in classes_above(domains, above, names)}:
            wrong.setdefault((names[0], asked), []).append(node)
    for (name, asked), several in sorted(wrong.items()):
        known = [each.name for each in classes_above(domains, above, (name,))]
        problem = f"{_several(several)} of class {asked!r}, which is none here: the priority of its pods decides"
        yield Mistake(place_in_cluster(f"PowerDomain/{name}", ("spec", "classes")), problem, meant(asked, known))


def _several(nodes: list[str]) -> str:
    named = ", ".join(nodes[:SHOWN_NODES])
    if len(nodes) > SHOWN_NODES:
        named += f" and {len(nodes) - SHOWN_NODES} more"
    return f"Node {named} is" if len(nodes) == 1 else f"Nodes {named} are"
