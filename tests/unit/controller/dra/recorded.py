"""Recorded answers of kube-scheduler's allocator: `python -m tests.unit.controller.dra.recorded PROGRAM`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from controller.api.notation import quantity
from tests.builders.dra_cases import case

RECORD = Path(__file__).parent / "published_allocations.json"
SEEDS = range(600)


def record(program: str) -> None:
    """program: built from tests/controlplane/oracle/claim_allocator.go."""
    asked = json.dumps([case(seed) for seed in SEEDS]).encode()
    done = subprocess.run([program], input=asked, stdout=subprocess.PIPE, check=True)  # noqa: S603 - as one calls it
    answers = json.loads(done.stdout)
    lines = (json.dumps(_devices(each)) for each in answers)
    RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def _devices(answer: dict[str, Any]) -> list[list[str]] | None:
    """Of each claim; None where it has no allocation, or an error for one."""
    if not answer["results"]:
        return None
    results = (claim["devices"].get("results", []) for claim in answer["results"])
    return [[text(each["device"], each.get("consumedCapacity", {})) for each in of_claim] for of_claim in results]


def text(device: str, consumed: dict[str, Any]) -> str:
    return " ".join([device, *(f"{name}={quantity(amount):f}" for name, amount in sorted(consumed.items()))])


if __name__ == "__main__":
    record(sys.argv[1])
