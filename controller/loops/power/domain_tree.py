"""Power tree from PowerDomain objects and node labels: which domain feeds which, where each node draws, and its class.

Pure. Objects come and go one by one, so most inconsistencies are reported and counted at their worst case. Only errors
that would silently disable a budget (an unknown feed, a cycle) block the new tree; the previous one then stays in
force.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cluster.errors import Mistake, meant
from controller.api.power_domain import PowerDomainSpec, ServiceClass
from controller.objects.read import place_in_cluster

CLASS_LABEL = "tonnage.dev/power-class"
"""Label of a node with the name of its service class; it overrides the priority of the node's pods."""
DEFAULT_CLASS = ServiceClass(name="all", rank=0)
"""Class of nodes without a domain above them that names classes."""
SHOWN_NODES = 3
"""Number of nodes listed in one error; a misspelt label may be on hundreds."""

Domains = Mapping[str, PowerDomainSpec]


@dataclass(frozen=True, slots=True)
class PoweredNode:
    """Properties of a node that matter to power."""

    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    priority: int | None = None
    """Priority of its most important pod that holds GPUs; None: no pod does."""


@dataclass(frozen=True, slots=True)
class PowerTree:
    """Position of every node in the power tree."""

    feeds_of_node: Mapping[str, tuple[str, ...]]
    """Node → the domains that it draws from directly: one, or several where labels contradict each other; then each of
    them must be able to carry the whole node. Nodes in no domain are omitted."""
    class_of_node: Mapping[str, ServiceClass]
    observed: frozenset[str]
    """Nodes whose limits are not changed, because a domain above them has mode observe."""
    fatal: tuple[Mistake, ...]
    """Errors that make the tree unusable."""
    mistakes: tuple[Mistake, ...]
    """Errors that are reported; the tree counts what they concern at its worst case."""


def power_tree(domains: Domains, nodes: Mapping[str, PoweredNode]) -> PowerTree:
    """The power tree. domains: by name. nodes: all of the cluster, by name."""
    above = {name: lineage(domains, name) for name in domains}
    by_label: dict[str, dict[str, list[str]]] = {}
    for name in sorted(domains):
        if (asked := domains[name].nodes) is not None:
            for value in asked.values:
                by_label.setdefault(asked.key, {}).setdefault(value, []).append(name)
    matched = {}
    for node, known in sorted(nodes.items()):
        names = [name for key, values in by_label.items() for name in values.get(known.labels.get(key, ""), ())]
        if names:
            matched[node] = tuple(dict.fromkeys(names))
    # The innermost of domains of which one feeds the other: labels on the row and on the rack do not contradict each
    # other.
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
        fatal=tuple(_fatal(domains, nodes)),
        mistakes=mistakes,
    )


def lineage(domains: Domains, name: str) -> tuple[str, ...]:
    """The domain and all that it draws through, the nearest first, each once. Also ends where feeds form a cycle."""
    found = {name: None}
    for each in (reached := [name]):  # grows during the iteration
        for feed in domains[each].feeds:
            if feed.name in domains and feed.name not in found:
                found[feed.name] = None
                reached.append(feed.name)
    return tuple(found)


def classes_above(
    domains: Domains, above: Mapping[str, tuple[str, ...]], names: tuple[str, ...]
) -> tuple[ServiceClass, ...]:
    """Classes of the domain nearest to the node that has some."""
    nearest = (domains[each].classes for name in names for each in above[name] if domains[each].classes)
    return tuple(next(nearest, (DEFAULT_CLASS,)))


def class_of(classes: tuple[ServiceClass, ...], node: PoweredNode) -> ServiceClass:
    """Class by the node's label; else by the priority of its pods; else the class that gives up power first."""
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


def _fatal(domains: Domains, nodes: Mapping[str, PoweredNode]) -> Iterator[Mistake]:
    """Unknown feeds, cycles, and domains with the name of a node: nodes are domains too, and their agents hold their
    leases."""
    for name, spec in sorted(domains.items()):
        for number, feed in enumerate(spec.feeds):
            if feed.name not in domains:
                place = place_in_cluster(f"PowerDomain/{name}", ("spec", "feeds", number, "name"))
                yield Mistake(place, f"there is no PowerDomain {feed.name!r}", meant(feed.name, domains))
    for name, spec in sorted(domains.items()):
        if any(name in lineage(domains, feed.name) for feed in spec.feeds if feed.name in domains):
            place = place_in_cluster(f"PowerDomain/{name}", ("spec", "feeds"))
            yield Mistake(place, "draws through itself", "remove one feed of the cycle")
    for name in sorted(domains.keys() & nodes.keys()):
        place = place_in_cluster(f"PowerDomain/{name}", ("metadata", "name"))
        yield Mistake(place, "is also the name of a Node", "name the domain after its location, such as rack-7")


def _torn_nodes(feeds: Mapping[str, tuple[str, ...]]) -> Iterator[Mistake]:
    torn: dict[tuple[str, ...], list[str]] = {}
    for node, names in feeds.items():
        if len(names) > 1:
            torn.setdefault(names, []).append(node)
    for names, nodes in torn.items():
        for name in names:
            others = " and ".join(other for other in names if other != name)
            problem = f"{_several(nodes)} also in {others}, and neither feeds the other: each counts the whole node"
            remedy = "let one domain select it; a rack with two feeds is one domain with two feeds"
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
        problem = f"{_several(several)} of class {asked!r}, which is not defined here: the priority of its pods decides"
        yield Mistake(place_in_cluster(f"PowerDomain/{name}", ("spec", "classes")), problem, meant(asked, known))


def _several(nodes: list[str]) -> str:
    named = ", ".join(nodes[:SHOWN_NODES])
    if len(nodes) > SHOWN_NODES:
        named += f" and {len(nodes) - SHOWN_NODES} more"
    return f"Node {named} is" if len(nodes) == 1 else f"Nodes {named} are"
