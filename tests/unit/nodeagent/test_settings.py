"""Settings of the agent's file: what is said about one that is wrong."""

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from nodeagent.settings import read_settings


def mistakes_in(tmp_path: Path, text: str, node: str | None = None) -> list[str]:
    file = tmp_path / "agent.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_settings(file, node)
    return [str(each).partition("agent.yaml")[2] for each in raised.value.mistakes]


def test_a_misspelled_setting_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    assert mistakes_in(tmp_path, "periodd: 0.5", "n1") == [
        ", periodd: there is no such setting; did you mean period?",
    ]


def test_where_nothing_names_the_node_the_error_says_what_does(tmp_path: Path) -> None:
    assert mistakes_in(tmp_path, "backend: none") == [
        ", node: is missing; This node's name in the cluster: --node or NODE_NAME.",
    ]


def test_a_meter_without_its_bmc_is_told_as_such(tmp_path: Path) -> None:
    assert mistakes_in(tmp_path, "meter: true", "n1") == [
        ": redfish is missing: the node's meter needs it, with the `host` of the BMC at least; see docs/power.md",
    ]


def test_a_file_that_is_missing_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_settings(tmp_path / "none.yaml", "n1")

    said = str(raised.value).partition("none.yaml")[2]
    assert said == ": cannot be read: No such file or directory; name a YAML file"
