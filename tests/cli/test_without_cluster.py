"""Parts of the command line that need no cluster: durations, ages, fields, usage errors."""

import pytest
from click.testing import CliRunner

from cli.inputs.cluster import duration
from cli.main import completions, program_name, tonnage
from cli.printing.columns import human_duration, since


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("1m30s", 90.0), ("500ms", 0.5), ("1h", 3600.0), ("0", 0.0)])
def test_lengths_of_time_are_read_as_kubectl_reads_them(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "-5s", "1m 30s"])
def test_a_text_that_is_not_a_duration_is_wrong_usage(text: str) -> None:
    result = CliRunner().invoke(tonnage, ["get", "nodes", "--request-timeout", text])

    assert result.exit_code == 2
    assert "not a duration" in result.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (127, "2m7s"), (600, "10m"), (10_800, "3h"), (11_100, "3h5m"),
     (28_800, "8h"), (172_800, "2d"), (176_400, "2d1h"), (691_200, "8d"), (63_072_000, "2y"), (-5, "0s")],
)  # fmt: skip
def test_ages_are_written_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_an_age_without_an_instant_is_unknown() -> None:
    assert since(None, 0.0) == since("yesterday", 0.0) == "<unknown>"
    assert since("1970-01-01T00:00:10Z", 15.0) == "5s"


def test_a_field_is_explained_with_its_type_and_its_fields() -> None:
    result = CliRunner().invoke(tonnage, ["explain", "msvc.spec.slo"])

    assert result.exit_code == 0
    assert result.stdout.startswith("ModelService.spec.slo\n")
    assert "- `tpot` (duration, required): Upper bound" in result.stdout


@pytest.mark.parametrize(
    ("target", "help_"), [("msvc.spec.slos", "slo"), ("modelservices", ""), ("model", "modelservice")]
)
def test_a_field_that_is_not_there_is_wrong_use_and_its_like_is_named(target: str, help_: str) -> None:
    result = CliRunner().invoke(tonnage, ["explain", target])

    assert result.exit_code == (2 if help_ else 0)
    assert help_ in result.stderr


def test_files_and_a_cluster_are_not_planned_at_once() -> None:
    for verb in (["plan"], ["explain", "pod/x"], ["top", "gpus"]):
        result = CliRunner().invoke(tonnage, [*verb, "-f", "examples", "--context", "there"])
        assert result.exit_code == 2


@pytest.mark.parametrize("words", [["get"], ["top", "people"],
                                   ["get", "nodes", "-o", "csv"], ["events", "--for", "chat"]])  # fmt: skip
def test_wrong_usage_is_reported_before_a_cluster_is_read(words: list[str]) -> None:
    assert CliRunner().invoke(tonnage, [*words, "--kubeconfig", "/nowhere"]).exit_code == 2


def test_a_kubeconfig_that_is_not_there_is_wrong_use() -> None:
    result = CliRunner().invoke(tonnage, ["get", "nodes", "--kubeconfig", "/nowhere"])

    assert result.exit_code == 2
    assert "--kubeconfig" in result.stderr


def test_kubectl_is_named_where_kubectl_started_it() -> None:
    assert program_name("/usr/bin/kubectl-tonnage") == "kubectl tonnage"
    assert program_name("/usr/bin/tonnage") == "tonnage"


def test_kubectl_completes_verbs_with_their_help() -> None:
    assert list(completions(["dra"])) == ["drain\tEmpty a node, after showing where its pods would go.", ":4"]
    assert list(completions(["apply", "-f", ""])) == [":0"]


def test_completing_without_a_cluster_offers_nothing_and_fails_nothing() -> None:
    assert list(completions(["get", "--kubeconfig", "/nowhere", ""])) == [":4"]
