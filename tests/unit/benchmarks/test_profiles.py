"""Profile files: both forms are read, and everything wrong is named with its place."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from tests.rigs.serving_profiles import read_profiles

FULL: dict[str, Any] = {
    "input_buckets": [100, 200],
    "output_buckets": [50],
    "cost_per_hour": {"L4": 0.7, "A100": 3.67},
    "profiles": {"40ms": {"L4": [[0], [0]], "A100": [[5], [2]]}, "120ms": {"L4": [[1], [0]], "A100": [[6], [3]]}},
    "distributions": {"short": [[0.75], [0.25]]},
}


def written(folder: Path, content: object) -> Path:
    path = folder / "profiles.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def wrong(folder: Path, content: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read_profiles(written(folder, content))
    return str(caught.value)


def changed(path: str, value: object) -> dict[str, Any]:
    """The full form with one place set to a value, or removed where the value is `...`."""
    content = copy.deepcopy(FULL)
    at: Any = content
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in way:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return content


def test_a_table_of_zeros_says_that_a_type_cannot_keep_that_slo(tmp_path: Path) -> None:
    profiles = read_profiles(written(tmp_path, FULL))

    assert list(profiles.tables) == ["40ms", "120ms"]
    assert profiles.slos["40ms"].tpot_s == 0.04
    assert not profiles.tables["40ms"]["L4"].any()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("profiles/40ms/A100/1/0", -2, "profiles"),
        ("profiles/40ms/A100/1/0", None, "profiles"),
        ("profiles/40ms/A100", ..., "profiles.40ms.A100: is missing"),
        ("profiles/40ms/A100", [[5]], "profiles.40ms.A100: the buckets are 2 × 1"),
        ("profiles/40ms/A100", [[0], [0]], "profiles.40ms: every throughput is 0"),
        ("profiles/40ms/B200", [[5], [2]], "profiles.40ms.B200: is a GPU type without a price"),
        ("profiles/fast", {"L4": [[1], [1]], "A100": [[1], [1]]}, "'fast' is not a time per token; name it like 40ms"),
        ("cost_per_hour/L4", 0, "cost_per_hour"),
        ("distributions/short", [[0.7], [0.2]], "distributions.short: adds up to 0.9"),
        ("distributions/short", [[0.5], [0.25], [0.25]], "distributions.short: the buckets are"),
        ("distributions/short/0/0", "much", "distributions"),
        ("input_buckets", [200, 100], "input_buckets: is [200, 100]; give upper edges"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, path: str, value: object, words: str) -> None:
    assert words in wrong(tmp_path, changed(path, value))


def test_what_is_no_json_is_said_to_be_none(tmp_path: Path) -> None:
    assert "cannot be read as profiles" in wrong(tmp_path, "{")
    assert "cannot be read as profiles" in wrong(tmp_path, "[]")


def test_the_short_form_is_one_workload_at_one_rate(tmp_path: Path) -> None:
    short = {
        "gpu_info": {"A10G": {"cost": 1.01, "tputs": [[2, 1]]}},
        "workload_distribution": [[0.5, 0.5]],
        "total_request_rate": 30,
        "slice_factor": 1,
    }

    profiles = read_profiles(written(tmp_path, short))

    assert profiles.rates == (30.0,)
    assert profiles.slice_factor == 1
    assert "cannot be read" in wrong(tmp_path, {**short, "total_request_rate": None})
