"""Sweeps on Ray, without Ray: what a worker does with a run."""

import pickle

import pytest

from cluster.errors import ConfigError
from simulator.sweep.on_ray import KINDS, _installed


def played(there: bytes, run: int) -> object:
    value, error = pickle.loads(KINDS["run"](there, pickle.dumps(abs), pickle.dumps((0, run))))  # noqa: S301
    if error is not None:
        raise error
    return value


def test_a_worker_plays_a_run() -> None:
    assert played(_installed(), -3) == 3


def test_a_worker_of_another_code_plays_none() -> None:
    with pytest.raises(ConfigError, match="one image"):
        played(b"Tonnage of yesterday", -3)


def test_an_error_of_a_run_that_cannot_be_sent_comes_in_words() -> None:
    with pytest.raises(TypeError):
        played(_installed(), None)  # type: ignore[arg-type]
