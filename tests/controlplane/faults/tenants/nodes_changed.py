"""Nodes that are relabelled and tainted in the middle of binding."""

import json
from collections.abc import Mapping
from functools import partial

from tests.controlplane.faults.scenarios import a_wave, happened, in_the_middle
from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.plain_api import PlainApi
from tests.until import comes_true

TAINTS = [{"key": "example.com/away", "effect": "NoSchedule"}]
TOLD_WITHIN_S = 120.0
"""Time until all pods run or are told of: the deadline of a release is 60 s."""


def nodes_changed(play: Play, rounds: int) -> None:
    """Nodes are moved to another pool by their labels, and tainted, in the middle of binding."""
    with beside_canaries(play):
        api = play.api()
        for number in range(rounds):
            open_nodes = [each for each in play.stage.nodes if each["metadata"]["labels"]["corner"] == "open"]
            picked = [each["metadata"]["name"] for each in play.chance.sample(open_nodes, 8)]
            pools = {each["metadata"]["name"]: each["metadata"]["labels"]["pool"] for each in open_nodes}
            done = in_the_middle(play, play.leader(), partial(_set_nodes, play, api, picked, {}, TAINTS))
            play.create(a_wave(play, number))
            happened(done)
            play.injected["nodes relabelled"] += 4
            play.injected["nodes tainted"] += 4
            _make_anew(play, api)
            play.settle()
            play.clear()
            _set_nodes(play, api, picked, pools, None)


def _make_anew(play: Play, api: PlainApi) -> None:
    """What a person does about bare pods that were released towards a node that is another by now.

    No owner would make them again, so the operator evicts none of them, and tells of each by an Event.
    """
    comes_true(lambda: play.missing() <= _told_of(play, api), TOLD_WITHIN_S)
    told = play.missing() & _told_of(play, api)
    for pod in play.stage.witness.pods(play.namespace):
        if pod.name in told:
            play.delete(pod, api)
            play.injected["bare pods told of as NotBound, made anew"] += 1


def _told_of(play: Play, api: PlainApi) -> set[str]:
    """Names of pods about which an Event says that they hold a place in which they will not start."""
    events = api.send("GET", f"/api/v1/namespaces/{play.namespace}/events").body["items"]
    found = (each["involvedObject"] for each in events if "NotBound" in json.dumps(each))
    return {f"{each['namespace']}/{each['name']}" for each in found}


def _set_nodes(play: Play, api: PlainApi, names: list[str], pools: Mapping[str, str], taints: object) -> None:
    """The first half gets the label of its pool, or of none that Tonnage has; the other half gets taints."""
    half = len(names) // 2
    for name in names[:half]:
        labels = {"pool": pools.get(name, "reserved")}
        play.patch(api, f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
    for name in names[half:]:
        play.patch(api, f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
