"""The recorder of torch's process groups: against a fake of torch's hooks, and against torch where it is installed."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from health.records.frames import decoded
from tonnage.recorder import Recorder
from tonnage.records import Failure, Kind, Op, Role, role_of


class Future:
    """A future of torch: done when the test says so."""

    def __init__(self) -> None:
        self.error: str = ""
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def value(self) -> None:
        if self.error:
            raise RuntimeError(self.error)

    def end(self, error: str = "") -> None:
        self.error = error
        for callback in self._callbacks:
            callback(self)


@dataclass
class Group:
    """A process group of torch with hooks before and after each operation."""

    group_desc: str
    group_name: str = "0"
    before: list[Callable[[Any], None]] = field(default_factory=list)
    after: list[Callable[[Any], None]] = field(default_factory=list)

    def register_pre_hook(self, _: int, hook: Callable[[Any], None]) -> None:
        self.before.append(hook)

    def register_post_hook(self, _: int, hook: Callable[[Any], None]) -> None:
        self.after.append(hook)

    def issue(self, name: str, number: int, root: int = -1) -> Future:
        future = Future()
        tensors = [SimpleNamespace(nbytes=1 << 20)]
        work = SimpleNamespace(get_future=lambda: future)
        given = SimpleNamespace(
            name=SimpleNamespace(name=name),
            op_id=number,
            input_tensors=tensors,
            output_tensors=[],
            root=root,
            work=work,
        )
        for hook in (*self.before, *self.after):
            hook(given)
        return future


@pytest.fixture
def torch_recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module over a fake of the parts of torch that it uses."""
    torch, distributed, c10d, optim, optimizer = (ModuleType(name) for name in "abcde")
    torch.__dict__.update(
        distributed=distributed,
        cuda=SimpleNamespace(is_initialized=lambda: False, is_available=lambda: False),
        __version__="0",
    )
    distributed.__dict__.update(distributed_c10d=c10d, ProcessGroup=Group, GroupMember=SimpleNamespace)
    optimizer.__dict__.update(register_optimizer_step_post_hook=lambda _: None)
    names = ("torch", "torch.distributed", "torch.distributed.distributed_c10d", "torch.optim", "torch.optim.optimizer")
    for name, module in zip(names, (torch, distributed, c10d, optim, optimizer), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "tonnage.torch_recorder", raising=False)
    yield importlib.import_module("tonnage.torch_recorder")
    sys.modules.pop("tonnage.torch_recorder", None)
    del sys.modules["tonnage"].__dict__["torch_recorder"]


def rows_of(recorder: Recorder, sent: list[bytes]) -> Any:
    recorder.beat()
    return decoded(b"".join(sent)).rows


def test_an_operation_is_recorded_from_its_issue_to_the_end_of_its_future(torch_recorder: ModuleType) -> None:
    sent: list[bytes] = []
    recorder = Recorder(sent.append, rank=1)
    group = Group("default_pg")
    torch_recorder.TorchRecorder(recorder, 1, 4).follow(group, [0, 1, 2, 3])

    future = group.issue("ALLREDUCE", 7)
    waiting = rows_of(recorder, sent)
    sent.clear()
    future.end()
    finished = rows_of(recorder, sent)

    assert waiting["op"][waiting["kind"] == Kind.IN_FLIGHT].tolist() == [Op.ALL_REDUCE]
    assert finished["op"][finished["kind"] == Kind.OPERATION].tolist() == [Op.ALL_REDUCE]
    assert not np.any(finished["kind"] == Kind.IN_FLIGHT)
    (member,) = waiting[waiting["kind"] == Kind.MEMBER]
    assert (member["seq"], member["step"], member["op"]) == (1, 4, Role.WORLD)


def test_a_broken_connection_is_an_error_of_its_class(torch_recorder: ModuleType) -> None:
    sent: list[bytes] = []
    group = Group("mesh_dp")
    recorder = Recorder(sent.append, rank=0)
    torch_recorder.TorchRecorder(recorder, 0, 2).follow(group, [0, 1])

    group.issue("ALLREDUCE", 1).end("Connection closed by peer [127.0.0.1]:1234")

    rows = rows_of(recorder, sent)
    assert rows["size"][rows["kind"] == Kind.ERROR].tolist() == [Failure.CONNECTION]


def test_work_that_cannot_be_asked_is_let_go_and_hides_no_other(torch_recorder: ModuleType) -> None:
    def broken() -> bool:
        raise RuntimeError("CUDA error: connection reset by peer")

    sent: list[bytes] = []
    recorder = Recorder(sent.append, rank=0)
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    group = recorder.join("dp", [0, 1], Role.DATA)
    works = (SimpleNamespace(is_completed=broken), SimpleNamespace(is_completed=lambda: True, is_success=lambda: True))
    for number, work in enumerate(works):
        made._tokens[group, number] = recorder.enter(group, Op.ALL_REDUCE)
        made._watched[group, number] = work

    made._look_once()

    rows = rows_of(recorder, sent)
    assert rows["size"][rows["kind"] == Kind.ERROR].tolist() == [Failure.CONNECTION]
    assert rows["op"][rows["kind"] == Kind.OPERATION].tolist() == [Op.ALL_REDUCE]
    assert not made._watched  # each holds the tensors of its operation


def test_work_of_another_kind_than_torchs_is_not_in_flight_for_ever(torch_recorder: ModuleType) -> None:
    recorder = Recorder(lambda _: None, rank=0)
    group = Group("mesh_dp")
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    made._arrived = threading.Event()  # this test looks in place of the recorder's thread
    made.follow(group, [0, 1])
    given = SimpleNamespace(
        name=SimpleNamespace(name="ALLREDUCE"), op_id=1, input_tensors=[], output_tensors=[], root=-1, work=object()
    )

    for hook in (*group.before, *group.after):
        hook(given)
    made._look_once()

    assert not recorder._in_flight
    assert not made._tokens


def test_whatever_a_hook_is_given_the_job_does_not_notice(torch_recorder: ModuleType) -> None:
    sent: list[bytes] = []
    group = Group("mesh_tp")
    recorder = Recorder(sent.append, rank=0)
    torch_recorder.TorchRecorder(recorder, 0, 2).follow(group, [0, 1])

    for hook in (*group.before, *group.after):
        hook(SimpleNamespace())

    assert not np.any(rows_of(recorder, sent)["kind"] == Kind.OPERATION)


def test_a_step_ends_with_that_of_the_first_optimizer(torch_recorder: ModuleType) -> None:
    recorder = Recorder(lambda _: None, rank=0)
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    first, second = object(), object()

    for optimizer in (first, second, first):
        made.step_done(optimizer)

    assert recorder._step == 2


def test_a_torch_without_hooks_is_left_as_it_is(
    torch_recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch_recorder.distributed, "ProcessGroup", SimpleNamespace)

    assert not torch_recorder.start()
    assert "nothing is recorded" in caplog.text


def test_a_torch_that_makes_groups_in_another_way_is_left_as_it_is(
    torch_recorder: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    assert not hasattr(torch_recorder.distributed_c10d, "_new_process_group_helper")

    assert not torch_recorder.start()
    assert "nothing is recorded" in caplog.text


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("mesh_tp", Role.TENSOR),
        ("mesh_pp", Role.PIPELINE),
        ("replicate", Role.DATA),
        ("dp_replicate", Role.DATA),
        ("fsdp", Role.DATA),
        ("other", Role.OTHER),
    ],
)
def test_a_groups_role_follows_from_its_description(description: str, role: Role) -> None:
    assert role_of(description) is role


REAL = """
import os, sys, tempfile, torch
from torch import distributed
from tonnage import torch_recorder
sent = []
torch_recorder.Recorder.started = classmethod(lambda made, **given: made(sent.append, rank=given["rank"]))
assert torch_recorder.start("/nowhere")
meet = tempfile.mktemp()
distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=0, world_size=1)
total = torch.ones(4)
distributed.all_reduce(total)
recorder = torch_recorder.recorder()
recorder.beat()
assert total.tolist() == [1.0] * 4
sys.stdout.buffer.write(b"".join(sent))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (2.15 has the hooks)")
def test_stock_torch_with_gloo_is_recorded() -> None:
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, check=True, timeout=300)  # noqa: S603

    rows = decoded(done.stdout).rows
    assert rows["op"][rows["kind"] == Kind.OPERATION].tolist() == [Op.ALL_REDUCE]
