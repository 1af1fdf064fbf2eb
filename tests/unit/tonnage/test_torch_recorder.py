"""The recorder of torch's process groups: against a fake of torch's hooks, and against torch where it is installed."""

import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from health.records.frames import decoded
from tonnage.recorder import Recorder
from tonnage.records import Failure, Kind, Op, Role, Times, role_of


@dataclass(frozen=True)
class Name:
    """The kind of an operation, as torch has it: one of an enumeration."""

    name: str


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
            name=Name(name),
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
        name=Name("ALLREDUCE"), op_id=1, input_tensors=[], output_tensors=[], root=-1, work=object()
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


@dataclass
class Device:
    """The parts of torch.cuda that the recorder uses, over a device that is this many milliseconds behind its host."""

    queued_ms: float = 0.0
    """Work that is queued on the job's stream: what is queued next begins that much later."""
    is_capturing: bool = False
    now_ns: int = 1_000_000_000
    """The host's clock, which stands still meanwhile."""

    def __post_init__(self) -> None:
        device = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: object = None) -> None:
                self.at_ns = device.now_ns + (0 if stream else int(device.queued_ms * 1e6))

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, other: "Event") -> float:
                return (other.at_ns - self.at_ns) / 1e6

        self.Event, self.Stream, self.device = Event, lambda _: object(), lambda _: nullcontext()
        self.is_available = self.is_initialized = lambda: True
        self.is_current_stream_capturing = lambda: self.is_capturing


@pytest.fixture
def device(torch_recorder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(torch_recorder.torch, "cuda", made)
    monkeypatch.setattr(
        torch_recorder, "ctypes", SimpleNamespace(CDLL=lambda _: Mock(), byref=lambda it: it, c_int=lambda it: it)
    )
    monkeypatch.setattr(torch_recorder, "time", SimpleNamespace(monotonic_ns=lambda: made.now_ns, sleep=time.sleep))
    monkeypatch.setattr(Group, "_enable_collectives_timing", lambda _: None, raising=False)
    return made


def issued(made: Any, group: Group, number: int, took_ms: float | None) -> None:
    """An operation on the device that took so long there; None: its backend does not tell."""

    def duration() -> float:
        if took_ms is None:
            raise RuntimeError("getDuration only works if timing was enabled")
        return took_ms

    work = SimpleNamespace(is_completed=lambda: True, is_success=lambda: True, _get_duration=duration)
    tensors = [SimpleNamespace(nbytes=1 << 20, is_cuda=True, device="cuda:0")]
    given = SimpleNamespace(
        name=Name("ALLREDUCE"),
        op_id=number,
        input_tensors=tensors,
        output_tensors=[],
        root=-1,
        work=work,
    )
    for hook in (*group.before, *group.after):
        hook(given)
    made._look_once()


def test_an_operation_on_a_device_is_recorded_as_the_device_ran_it(torch_recorder: ModuleType, device: Device) -> None:
    """The host queues three operations within a millisecond, 50 and 80 ms before the device comes to them."""
    sent: list[bytes] = []
    recorder, group = Recorder(sent.append, rank=0), Group("mesh_dp")
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    made._arrived = threading.Event()
    made.follow(group, [0, 1])

    for number, (queued_ms, took_ms) in enumerate([(50.0, 4.0), (51.0, 2.0), (80.0, 7.0)]):
        device.queued_ms = queued_ms
        issued(made, group, number, took_ms)

    rows = rows_of(recorder, sent)
    done = rows[rows["kind"] == Kind.OPERATION]
    assert ((done["at_ns"] - device.now_ns) / 1e6).tolist() == [50.0, 51.0, 80.0]
    assert (done["for_ns"] / 1e6).tolist() == [4.0, 5.0, 7.0]  # the second waits on its stream for the first
    assert rows["op"][rows["kind"] == Kind.PLACE].tolist() == [Times.DEVICE]


def test_a_job_whose_backend_times_nothing_says_that_its_times_are_the_hosts(
    torch_recorder: ModuleType, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[bytes] = []
    recorder, group = Recorder(sent.append, rank=0), Group("mesh_dp")
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    made._arrived = threading.Event()
    made.follow(group, [0, 1])
    device.queued_ms = 50.0

    for number in range(3):
        issued(made, group, number, None)

    rows = rows_of(recorder, sent)
    assert rows["op"][rows["kind"] == Kind.PLACE].tolist() == [Times.QUEUED]
    assert len(rows[rows["kind"] == Kind.OPERATION]) == 3
    assert [each.message for each in caplog.records if "without the device's times" in each.message] == [
        "operations are recorded without the device's times: getDuration only works if timing was enabled"
    ]


def test_what_a_graph_captures_is_not_recorded_as_run(torch_recorder: ModuleType, device: Device) -> None:
    sent: list[bytes] = []
    recorder, group = Recorder(sent.append, rank=0), Group("mesh_dp")
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    made._arrived = threading.Event()
    made.follow(group, [0, 1])

    device.is_capturing = True
    issued(made, group, 0, 1.0)
    device.is_capturing = False
    issued(made, group, 1, 1.0)

    rows = rows_of(recorder, sent)
    assert rows["seq"][rows["kind"] == Kind.OPERATION].tolist() == [1]
    assert not made._watched


def test_operations_end_although_the_devices_clock_fails(
    torch_recorder: ModuleType, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang would be seen where there is none, if each look ended at the clock."""
    sent: list[bytes] = []
    recorder, group = Recorder(sent.append, rank=0), Group("mesh_dp")
    made = torch_recorder.TorchRecorder(recorder, 0, 2)
    made._arrived = threading.Event()
    made.follow(group, [0, 1])
    issued(made, group, 0, 1.0)

    def failing(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch_recorder.DeviceClock, "anchor", failing)
    device.now_ns += 20_000_000_000
    issued(made, group, 1, 1.0)

    rows = rows_of(recorder, sent)
    assert rows["seq"][rows["kind"] == Kind.OPERATION].tolist() == [1, 2]
    assert rows["op"][rows["kind"] == Kind.PLACE].tolist() == [Times.QUEUED]


def test_a_new_anchor_does_not_move_what_was_marked_before_it(torch_recorder: ModuleType, device: Device) -> None:
    clock = torch_recorder.DeviceClock("cuda:0")
    device.queued_ms = 30.0
    mark = clock.mark()
    before = clock.ran((0, 0), mark, 1.0)

    device.now_ns += 20_000_000_000
    clock.anchor()

    assert torch_recorder.DeviceClock.ran(clock, (1, 0), mark, 1.0) == before


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
