"""Errors as commands report them."""

import pytest

from cli.printing.errors import print_error
from controller.kube.errors import KubeReadError, Refusal


def test_a_wrong_token_is_answered_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(KubeReadError("reading /api", Refusal(401, "Unauthorized", "Unauthorized")))

    assert "you must be logged in" in capsys.readouterr().err
