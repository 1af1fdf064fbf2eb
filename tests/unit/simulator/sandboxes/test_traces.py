"""Traces of agents: generated ones of the published shape, and the published ones themselves."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import ConfigError
from tests.rigs.sandboxes.traces import generated, paper_trio, published, trace_from


def test_a_generated_trace_depends_on_its_seed_alone() -> None:
    assert generated("a", 7) == generated("a", 7)
    assert generated("a", 7) != generated("a", 8)


def test_generated_agents_have_the_published_shape() -> None:
    agents = [generated(str(seed), seed) for seed in range(200)]

    bases = [agent.phases[0].base_mib for agent in agents]
    rises = [phase.call.peak_mib for agent in agents for phase in agent.phases if phase.call]
    busy = [sum(phase.call.for_s for phase in agent.phases if phase.call) / agent.for_s for agent in agents]
    # Published: a base near 185 MiB; tests rise by 11 MiB in the median and 120 at the 95th percentile, python by 3 and
    # 34; 65 % of a run without a call.
    assert 150 <= np.median(bases) <= 190
    assert 3 <= np.median(rises) <= 11
    assert 60 <= np.percentile(rises, 95) <= 120
    assert 0.3 <= np.median(busy) <= 0.6


def test_the_trio_has_the_papers_peaks_in_every_round() -> None:
    for seed in range(20):
        assert [round(agent.peak_mib) for agent in paper_trio(seed)] == [421, 406, 406]


def test_a_trace_survives_its_way_into_the_guest() -> None:
    agent = generated("a", 1)
    assert trace_from(json.loads(json.dumps(agent.as_json()))) == agent


def test_memory_that_rises_during_a_call_is_the_calls(tmp_path: Path) -> None:
    run = {
        "id": "r",
        "samples": [[0, 100, 0], [1, 100, 0], [2, 150, 0], [3, 300, 0], [4, 120, 0], [6, 120, 0]],
        "tool_calls": [[1, 4, "Bash", "test"], [1.5, 1.6, "Read", ""], [2, 3, "Bash", "python"]],
    }
    path = tmp_path / "traces.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"runs": [run]}).encode()))

    (agent,) = published(path)

    first, last = agent.phases
    assert (first.think_s, first.base_mib) == (1.0, 100.0)
    assert first.call is not None
    assert first.call.command_class == "test"
    assert first.call.samples == ((0.0, 0.5), (1.0, 50.0), (2.0, 200.0), (3.0, 20.0))
    assert (last.think_s, last.base_mib, last.call) == (2.0, 120.0, None)


def test_a_file_that_holds_no_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="agent traces"):
        published(tmp_path / "missing.json.gz")


@pytest.mark.data
def test_the_published_traces_are_55_runs(public_data: Path) -> None:
    agents = published(public_data / "agents" / "tool_call_traces.json.gz")

    assert len(agents) == 55
    assert 1900 <= max(agent.peak_mib for agent in agents) <= 2200
