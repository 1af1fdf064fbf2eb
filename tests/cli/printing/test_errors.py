"""Errors as commands report them."""

import pytest

from cli.printing.terminal import print_error
from controller.kube.request import KubeReadError, Refusal


def test_a_wrong_token_is_answered_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(KubeReadError("reading /api", Refusal(401, "Unauthorized", "Unauthorized")))

    assert "you must be logged in" in capsys.readouterr().err


def test_a_request_without_credentials_is_answered_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    words = 'forbidden: User "system:anonymous" cannot get path "/api"'

    print_error(KubeReadError("reading /api", Refusal(403, "Forbidden", words)))

    assert "you must be logged in" in capsys.readouterr().err


def test_somebody_without_rights_is_not_told_to_log_in(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(KubeReadError("reading /api", Refusal(403, "Forbidden", 'User "ada" cannot list resource "nodes"')))

    assert "logged in" not in capsys.readouterr().err
