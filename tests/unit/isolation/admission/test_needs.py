"""Needs: hints from outside, and what stands in for them."""

import math

import pytest

from isolation.admission import PRIOR_BYTES, LearnedNeeds, bytes_from, claim_bytes, command_class
from isolation.ledger import MIB
from tests.builders.sandboxes import sandbox


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("2Gi", 2 << 30),
        ("1.5Gi", 3 << 29),
        ("512M", 512_000_000),
        ("64Ki", 65536),
        (4096, 4096),
        (" 1Mi ", MIB),
        (1e9, 10**9),
    ],
)
def test_a_hint_is_a_number_of_bytes_with_or_without_a_unit(hint: object, expected: int) -> None:
    assert bytes_from(hint) == expected


@pytest.mark.parametrize(
    "hint", [-1, 0, "-2Gi", math.nan, "NaN", "inf", "2 Gi", "high", "", None, True, [], "9" * 40, "1e9", "0x10", "٣Gi"]
)
def test_a_hint_that_is_no_positive_number_of_bytes_is_none(hint: object) -> None:
    assert bytes_from(hint) is None


@pytest.mark.parametrize("hint", [2**80, math.inf, "999999999999999999Ti"])
def test_a_huge_hint_is_bounded(hint: object) -> None:
    assert bytes_from(hint) == 2**63


def test_a_claim_never_exceeds_what_the_sandbox_can_give() -> None:
    small = sandbox("s", budget_mib=300, agent_mib=100)
    assert claim_bytes(2**63, "test", small, LearnedNeeds(), 0.95) == 200 * MIB


def test_a_hint_that_can_never_be_met_is_taken_for_what_the_class_needs() -> None:
    assert claim_bytes(301 * MIB, "light", sandbox("s", budget_mib=300), LearnedNeeds(), 0.95) == PRIOR_BYTES["light"]
    assert claim_bytes(300 * MIB, "light", sandbox("s", budget_mib=300), LearnedNeeds(), 0.95) == 300 * MIB


def test_without_a_hint_the_class_decides_first_by_its_prior_then_by_what_it_learned() -> None:
    learned = LearnedNeeds()
    assert claim_bytes(None, "test", sandbox("s"), learned, 0.95) == PRIOR_BYTES["test"]
    for _ in range(50):
        learned = learned.after("test", 40 * MIB, 3.0)
    claim = claim_bytes(None, "test", sandbox("s"), learned, 0.95)
    # The upper edge of a bucket of a quarter octave: at most 19 % above.
    assert 40 * MIB <= claim <= 40 * MIB * 1.19
    assert 3.0 <= learned.expected_s("test") <= 3.0 * 1.19


def test_a_class_forgets_what_is_long_past() -> None:
    learned = LearnedNeeds()
    for peak_mib in [400] * 100 + [50] * 400:
        learned = learned.after("test", peak_mib * MIB, 1.0)
    assert learned.need_bytes("test", 0.95) < 60 * MIB


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pytest -q tests", "test"),
        ("python -m pytest tests/a.py", "test"),
        ("python3.11 -m pip install numpy", "install"),
        ("/usr/bin/make -j4", "build"),
        ("timeout 60 pytest", "test"),
        ("PYTHONPATH=. python run.py", "python"),
        ("cargo test", "test"),
        ("cargo build --release", "build"),
        ("npm ci", "install"),
        ("uv run pytest", "test"),
        ("git log --oneline", "light"),
        ("env A=1 grep -r x .", "light"),
        ("terraform plan", "other:terraform"),
        ("", "other:"),
    ],
)
def test_commands_are_classed_by_program_and_arguments(command: str, expected: str) -> None:
    assert command_class(command.split()) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cd /repo && pytest -q", "test"),
        ("pytest -q | tail -5; echo done", "test"),
        ("FOO=1 python3 -c 'x=1'", "python"),
        ("ls -la 2>&1 | head", "light"),
        ("cat > a.py <<'EOF'\nimport x\nEOF", "light"),
        ("timeout 60 make || true", "build"),
    ],
)
def test_a_shells_script_is_classed_by_its_most_demanding_command(script: str, expected: str) -> None:
    assert command_class(["bash", "-c", script]) == expected
    assert command_class(["/bin/sh", "-lc", script]) == expected


@pytest.mark.parametrize("command", ["bash", "/usr/bin/env bash", "bash -i", "sh -l", "env A=1 bash --norc"])
def test_a_shell_that_waits_for_commands_is_no_command(command: str) -> None:
    assert command_class(command.split()) == "other:"
