"""A host without Kubernetes, where each scope of a slice is a sandbox, on a real kernel."""

from typing import Any

from tests.kernel.node import FOLDER, _sleep as sleep, begin_in_pod, in_pod, node, result_of, waiting_for
from tests.kernel.test_found_calls import HERE, PYTHON, output
from tests.kernel.test_sandbox_client import run
from tests.rigs.kernel.guest import Guest
from tests.rigs.launcher import run_in


def called(guest: Guest, function: str) -> Any:
    return guest.call(f"{__name__}:{function}")


def test_each_scope_of_a_slice_is_a_sandbox_whose_calls_are_found_or_asked_for(guest: Guest) -> None:
    found, asked, names = called(guest, "two_scopes")

    assert found.startswith("/call-found-")
    assert asked.startswith("/call-")
    assert names == [["run-a-scope", "run-b-scope"], ["run-b-scope"]]


def two_scopes() -> tuple[str, str, list[list[str]]]:
    with node() as made:
        for name in ("a", "b"):
            made.add_scope(name)
            run_in(made.files.folder(made.homes[name]), sleep)
        made.start()
        both = made.until(
            lambda report: len(report.sandboxes) == 2 and not any(s.trouble for s in report.sandboxes.values())
        )
        found = in_pod(made, "a", lambda: output(f'{PYTHON} "import time; time.sleep(0.2)"; {HERE}'))
        asked = in_pod(made, "b", lambda: run(["/bin/sh", "-c", HERE], "64Mi"))["out"]
        made.files.write(made.homes["a"], "cgroup.kill", "1")
        one = made.until(lambda report: len(report.sandboxes) == 1)
        return found, asked, [sorted(both.sandboxes), sorted(one.sandboxes)]


def test_the_weight_of_a_scope_is_its_priority(guest: Guest) -> None:
    waited, outranked = called(guest, "weights")

    assert waited["reason"] == "WAITED_TOO_LONG"
    assert outranked["outcome"] == "exited"


def weights() -> tuple[dict[str, Any], dict[str, Any]]:
    """300 MiB of the 410 are taken by a call of the middle one: only the heavier gets it to make way."""
    with node() as made:
        for name, weight in (("low", 50), ("middle", 100), ("high", 200)):
            made.add_scope(name, weight=weight)
            run_in(made.files.folder(made.homes[name]), sleep)
        made.start()
        made.until(lambda report: len(report.sandboxes) == 3 and not any(s.trouble for s in report.sandboxes.values()))
        begun = begin_in_pod(made, "middle", lambda: run(waiting_for(FOLDER / "go"), "300Mi"))
        made.until(lambda report: report.sandboxes["run-middle-scope"].running == 1)
        waited = in_pod(made, "low", lambda: run(["/bin/sh", "-c", "exit 0"], "300Mi", 1.0))
        outranked = in_pod(made, "high", lambda: run(["/bin/sh", "-c", "exit 0"], "300Mi", 20.0))
        (FOLDER / "go").touch()
        result_of(begun)
        return waited, outranked
