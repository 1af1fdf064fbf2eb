"""Settings of the operator's file: as they are printed, and what is said about a file that is wrong."""

from pathlib import Path

import pytest
import yaml

from cluster.errors import ConfigError
from controller.settings import as_yaml, read_settings, settings_from


def test_printed_settings_name_no_identity_so_that_each_process_draws_its_own(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(as_yaml(settings_from({"identity": "operator-0"})), encoding="utf-8")

    first, second = read_settings(file), read_settings(file)

    assert "identity" not in yaml.safe_load(file.read_text(encoding="utf-8"))
    assert len({first.identity, second.identity, "operator-0"}) == 3


@pytest.mark.parametrize("text", ["- resync_s: 7\n", "resync_s\n", "7\n"])
def test_a_file_that_is_no_mapping_is_an_error_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"settings.yaml: is not a mapping; write `name: value` lines"):
        read_settings(file)


def test_a_file_that_is_no_text_is_an_error_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(b"\xff\xfe\xa4")

    with pytest.raises(ConfigError, match=r"settings.yaml: cannot be read: "):
        read_settings(file)


def test_every_mistake_of_a_file_is_told_once_in_plain_words_with_the_setting_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("resync_ss: 3\ninterval_s: fast\npools: [{placr: gate}]\nray: {mode: fast}\n", encoding="utf-8")

    with pytest.raises(ConfigError) as raised:
        read_settings(file)

    assert sorted(str(each).partition("settings.yaml, ")[2] for each in raised.value.mistakes) == [
        "interval_s: should be a valid number, not 'fast'",
        "pools.0.placer: is missing",
        "pools.0.placr: there is no such setting; did you mean placer?",
        "ray.mode: should be 'none', 'embedded' or 'cluster', not 'fast'",
        "resync_ss: there is no such setting; did you mean resync_s?",
    ]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TONNAGE_RESYNC_S", "long", "TONNAGE_RESYNC_S, resync_s: should be a valid number, not 'long'"),
        ("TONNAGE_RAY__MODE", "far", "TONNAGE_RAY__MODE, ray.mode: should be 'none'"),
        ("TONNAGE_RAY", '{"mode": "far"}', "TONNAGE_RAY, ray.mode: should be 'none'"),
        ("TONNAGE_POOLS", "gate", "TONNAGE_POOLS: is not JSON; write the whole group as JSON"),
    ],
)
def test_a_wrong_variable_is_named_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("interval_s: 1\n", encoding="utf-8")
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError) as raised:
        read_settings(file)

    assert str(raised.value).startswith(said)
