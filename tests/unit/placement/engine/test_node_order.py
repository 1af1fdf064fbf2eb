"""Order of equal nodes: from their properties and load, never from their names."""

from dataclasses import replace

from cluster.nodes import NodeTaint
from placement.engine.packer import content_rank
from tests.builders.fleet import Node, node, pod, world


def in_order(nodes: list[Node], **rest: object) -> list[str]:
    seen = world(nodes, **rest)  # type: ignore[arg-type]
    return [seen.nodes.names[int(row)] for row in content_rank(seen).argsort()]


def test_type_size_labels_taints_and_what_is_free_decide_in_this_order() -> None:
    nodes = [
        node("t", gpus=1, gpu_type="T4"),
        node("tainted", gpus=2, taints=(NodeTaint("x"),)),
        node("labelled", gpus=2, labels={"zone": "1"}),
        node("idle", gpus=2),
        node("used", gpus=2),
        node("big", gpus=4),
        node("cpu"),
    ]

    order = in_order(nodes, pods=[pod("p", gpus=1, gpu_milli=100, on="used", devices=(1,))])

    assert order == ["cpu", "used", "idle", "tainted", "labelled", "big", "t"]


def test_labels_that_repeat_the_name_do_not_count() -> None:
    one = node("b", gpus=1, labels={"kubernetes.io/hostname": "b"})
    other = node("a", gpus=1, labels={"kubernetes.io/hostname": "a"})

    assert in_order([one, other]) == ["b", "a"]  # alike: the table's order stays


def test_a_seed_shuffles_alike_whatever_the_names() -> None:
    nodes = [node(f"n{n}", gpus=n) for n in range(8)]
    renamed = [replace(one, name=f"m{n}") for n, one in enumerate(nodes)]

    ranks = content_rank(world(nodes), seed=3).tolist()

    assert ranks == content_rank(world(renamed), seed=3).tolist()
    assert sorted(ranks) == list(range(8))
    assert ranks != list(range(8))
