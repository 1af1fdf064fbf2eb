"""`tonnage advise`: a dump of a cluster in, dollars out."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.inputs.price_catalogue import read_catalogue
from cli.main import tonnage
from cluster.errors import ConfigError
from tests.builders.manifests import Object, node, pod

PRODUCT = "NVIDIA-A100-SXM4-80GB"


def dump(*objects: Object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def fleet() -> str:
    return dump(node("busy", 4, PRODUCT), node("idle", 4, PRODUCT), pod("p", 4, on="busy"))


def advised(text: str, *words: str) -> Result:
    return CliRunner().invoke(tonnage, ["advise", "-f", "-", *words], input=text)


def test_an_idle_node_of_a_dump_has_a_price_with_date_and_source() -> None:
    """The catalogue has $3.67 for each of the four devices: 14.68 $/h."""
    result = advised(fleet())

    assert result.exit_code == 0, result.stderr
    assert "$14.68/h  1 node with 4 GPUs without a pod that uses one" in result.stdout
    assert "2024 (--prices FILE replaces them)." in result.stdout


def test_prices_are_replaced_by_those_of_a_file(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    content = "{date: 2026-11, source: our contract, types: [{name: a, products: [%s], memory: 80Gi, pricePerHour: 2}]}"
    prices.write_text(content % PRODUCT, encoding="utf-8")

    record = json.loads(advised(fleet(), "--prices", str(prices), "-o", "json").stdout)

    assert record["prices"].startswith("our contract; 2026-11")
    assert [(each["topic"], each["dollars_per_hour"]) for each in record["advice"]] == [("idle", 8.0)]


def test_a_catalogue_of_another_form_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("types: {}", encoding="utf-8")

    with pytest.raises(ConfigError, match="is no catalogue"):
        read_catalogue(tmp_path / "prices.yaml")


def test_the_page_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    page = tmp_path / "advice.html"

    assert advised(fleet(), "--report", str(page)).exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert html.rstrip().endswith("</html>")
    assert "http" not in html
    assert "prefers-color-scheme:dark" in html
    assert "@media print" in html
