"""A cluster means the same whether people wrote it down or an API server tells it, at once or bit by bit."""

import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import given, settings, strategies as st

from tests.builders.arbitrary_objects import clusters
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import Object, observed
from tests.builders.snapshot_content import content


@given(clusters())
def test_manifests_and_the_live_cluster_show_the_same(objects: list[Object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = observed(Path(folder), *objects)
    live = LiveCluster(objects)

    seen = live.observer.see()

    # In files, unless they are a cluster's, every pod that runs is one of Tonnage's, which alone may be moved.
    pods, of_files = seen.snapshot.pods, written.snapshot.pods
    movable = pods.movable if pods.strangers is None else np.where(pods.strangers, of_files.movable, pods.movable)
    ours = replace(seen.snapshot, pods=replace(pods, strangers=None, movable=movable))
    assert content(ours) == content(written.snapshot)
    assert (seen.mistakes, seen.dangling) == ((), ())
    assert live.observer.notes(seen.snapshot) == written.notes


@settings(max_examples=60)
@given(clusters(), clusters(), st.randoms(use_true_random=False), st.booleans())
def test_a_picture_that_was_patched_is_the_one_that_is_made_anew(
    before: list[Object], after: list[Object], chance: Random, is_seen_between: bool
) -> None:
    live = LiveCluster(before)
    live.observer.observe()
    left = {(obj["kind"], obj["metadata"]["name"]) for obj in after}
    deeds = [(live.put, obj) for obj in after]
    deeds += [(live.remove, obj) for obj in before if (obj["kind"], obj["metadata"]["name"]) not in left]
    chance.shuffle(deeds)

    for deed, obj in deeds:
        deed(obj)
        if is_seen_between:
            live.observer.observe()

    assert content(live.observer.observe()) == content(LiveCluster(after).observer.observe())
