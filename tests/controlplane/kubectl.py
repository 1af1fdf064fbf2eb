"""kubectl against the control plane of the tests: the client that users run."""

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.controlplane.direct_get import asked, direct_get

WITHIN = "60s"
"""For `kubectl wait`: a busy machine is not a failure."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl in one namespace as one user."""

    program: Path
    kubeconfig: Path
    namespace: str = "default"
    user: str = ""
    """Whom to impersonate; the administrator is himself."""

    def __call__(self, *arguments: str, stdin: object = None) -> str:
        """Standard output. stdin: an object that is given as JSON to `-f -`. Fails the test with kubectl's words."""
        done = self._run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def refusal(self, *arguments: str, stdin: object = None) -> str:
        """What kubectl says when the server refuses, which it must."""
        done = self._run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} was let through: {done.stdout}"
        return done.stderr

    def get(self, *arguments: str) -> Any:
        """The object or list as a structure, as `kubectl get -o json` prints it."""
        what = asked(arguments)
        found = None if what is None else direct_get(self.kubeconfig, self.user).get(what, self.namespace)
        return json.loads(self("get", *arguments, "-o", "json")) if found is None else found

    def wait(self, condition: str, what: str) -> None:
        """Wait for a condition: `condition=Ready`, `delete`, `jsonpath=...`."""
        self("wait", f"--for={condition}", what, f"--timeout={WITHIN}")

    def as_user(self, user: str) -> "Kubectl":
        return replace(self, user=user)

    def within(self, namespace: str) -> "Kubectl":
        return replace(self, namespace=namespace)

    def _run(self, *arguments: str, stdin: object) -> subprocess.CompletedProcess[str]:
        who = ["--as", self.user] if self.user else []
        # Beside the kubeconfig: one that all servers share holds the kinds of an earlier one at the same port.
        cache = ["--cache-dir", self.kubeconfig.parent / "kubectl-cache"]
        options = ["--kubeconfig", self.kubeconfig, *cache, "--namespace", self.namespace, *who]
        command = [self.program, *options, *arguments]
        given = None if stdin is None else json.dumps(stdin)
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)  # noqa: S603
