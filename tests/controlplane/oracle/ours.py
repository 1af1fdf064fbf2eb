"""The nodes that Tonnage allows for each pod that waits, from the same objects."""

import io
import json
from dataclasses import dataclass

import numpy as np

from cluster.snapshot import PENDING
from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import snapshot_from
from placement.engine.packer import Packer
from placement.policies.published import BestFit
from tests.controlplane.oracle.random_pods import Object


@dataclass(frozen=True, slots=True)
class Ours:
    """What Tonnage says about a pod."""

    allowed: frozenset[str]
    why: str = ""
    """Why it is in no plan at all."""


def allowed_by_tonnage(objects: list[Object]) -> dict[str, Ours]:
    """By pod that waits, `namespace/name`. A pod that no plan sees is allowed nowhere."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    snapshot = snapshot_from(read_manifests(["-"], io.StringIO(text))).snapshot
    pods, names = snapshot.pods, snapshot.nodes.names
    packer = Packer(snapshot, BestFit())
    left_out = {each.pod: each.code for each in snapshot.left_out}
    found = {}
    for each in objects:
        if each["kind"] != "Pod" or "nodeName" in each["spec"]:
            continue
        name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        row = pods.names.row(name)
        if row is None or pods.node[row] != PENDING or name in left_out:
            found[name] = Ours(frozenset(), left_out.get(name, "in no table"))
            continue
        fits = packer.feasible(pods.shapes[pods.shape[row]])
        found[name] = Ours(frozenset(names[node] for node in np.flatnonzero(fits).tolist()))
    return found
