"""Whatever people write, reading it ends in a snapshot or in mistakes that say where, never in a traceback."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings, strategies as st

from cluster.errors import ConfigError, Mistake
from controller.objects.manifests import read_manifests
from controller.snapshot.from_manifests import snapshot_from
from tests.builders.manifests import Object, gang, gpu_type, node, pod, profile, service

FLEET = [
    gpu_type(),
    profile(),
    service(gpuTypes=["a100"], instance={"cpu": "1", "memory": "1Gi"}),
    gang(topology={"within": "rack"}),
    node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
    pod(
        "p1",
        2,
        on="n1",
        labels={"tonnage.dev/gang": "train"},
        annotations={"tonnage.dev/devices": "0,1", "tonnage.dev/gpu-types": "a100"},
    ),
    pod(
        "p2",
        annotations={"tonnage.dev/gpu-milli": "300"},
        priority=7,
        nodeSelector={"nvidia.com/gpu.product": "A100"},
        tolerations=[{"operator": "Exists"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
                }
            }
        },
    ),
]


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*way, key)
        yield from ways(item, (*way, key))


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["500m", "1e400", "-1", "0", "a100", "default/p1", "9" * 30, "1P", 2**62, "0,0", "1,", "²"]),
    st.lists(st.integers(-1, 1), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@st.composite
def spoilt(draw: st.DrawFn) -> list[Object]:
    """The fleet, with up to three values replaced by something odd, or left out."""
    objects = deepcopy(FLEET)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(ways(objects))))
        at: Any = objects
        for part in way:
            at = at[part]
        if draw(st.booleans()):
            at[last] = draw(odd)
        else:
            del at[last]
    return objects


def mistakes_in(file: Path) -> tuple[Mistake, ...]:
    """What is wrong in a file; nothing where it became a snapshot."""
    try:
        snapshot_from(read_manifests([str(file)]))
    except ConfigError as error:
        return error.mistakes
    return ()


@settings(max_examples=300, deadline=None)
@given(objects=spoilt(), as_json=st.booleans())
def test_a_spoilt_fleet_is_read_or_refused_with_words(
    tmp_path_factory: Any, objects: list[Object], *, as_json: bool
) -> None:
    folder: Path = tmp_path_factory.mktemp("fleet")
    file = folder / ("f.json" if as_json else "f.yaml")
    whole = {"apiVersion": "v1", "kind": "List", "items": objects}
    text = json.dumps(whole) if as_json else yaml.safe_dump_all(objects, allow_unicode=True)
    file.write_text(text, encoding="utf-8")

    mistakes = mistakes_in(file)

    assert all(mistake.place and mistake.problem for mistake in mistakes)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab:-{}[]&*!|>#'\"\n ,?%@`\t<"), max_size=60))
def test_any_text_is_read_or_refused_with_words(tmp_path_factory: Any, text: str) -> None:
    file: Path = tmp_path_factory.mktemp("text") / "f.yaml"
    file.write_text(text, encoding="utf-8")

    assert all(mistake.place and mistake.problem for mistake in mistakes_in(file))
