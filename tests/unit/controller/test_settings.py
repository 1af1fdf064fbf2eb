"""Settings as they are printed: whoever starts two operators from one printed file gets two identities."""

from pathlib import Path

import yaml

from controller.settings import as_yaml, read_settings, settings_from


def test_printed_settings_name_no_identity_so_that_each_process_draws_its_own(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(as_yaml(settings_from({"identity": "operator-0"})), encoding="utf-8")

    first, second = read_settings(file), read_settings(file)

    assert "identity" not in yaml.safe_load(file.read_text(encoding="utf-8"))
    assert len({first.identity, second.identity, "operator-0"}) == 3
