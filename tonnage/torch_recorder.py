"""Recorder of torch's process groups: every collective, send and receive of a training job, DDP's own included.

    from tonnage import torch_recorder
    torch_recorder.start()        # before torch.distributed.init_process_group
    recorder = torch_recorder.recorder()

It uses the hooks of process groups that stock torch has from 2.15 on, so that no group, backend or call of the job is
replaced, and results are what they are without it. Where torch has no hooks, and whatever goes wrong later, it says so
once in the log and the job runs on without it.

Of operations on a CUDA device it records when the device began and ended them, not when the host queued them. What a
graph captures is not recorded, as it does not run then.
"""

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from types import TracebackType
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook

from tonnage.recorder import Recorder, Token
from tonnage.records import NO_PEER, Failure, Op, Role, Times, role_of

log = logging.getLogger(__name__)
SOCKET_VARIABLE = "TONNAGE_RECORDER_SOCKET"
SOCKET = "/run/tonnage/recorder.sock"
LOOK_S = 0.002
"""Time between two looks at operations that do not call back when they end: gloo's sends, all of NCCL."""
ANCHOR_S = 10.0
"""Time between two anchors of the device's clock: CUDA tells elapsed milliseconds as a 32-bit float, which is exact to
a microsecond for so long."""
_RELAXED = 2
"""cudaStreamCaptureModeRelaxed: calls of this thread do not invalidate a graph that another thread captures."""
_HOOK = 0x70_6E_61_67
"""Number under which the hooks are known to a group."""
_OPS = {op.name.replace("_", ""): int(op) for op in Op} | {"RECV": int(Op.RECEIVE)}
_ALL_TO_ALL, _WITH_PEER = int(Op.ALL_TO_ALL), (int(Op.SEND), int(Op.RECEIVE))


class DeviceClock:
    """When a CUDA device reached its events, as nanoseconds of the host's monotonic clock.

    An anchor is an event on a stream that nothing else is queued on, so that the device reaches it between two looks at
    the host's clock. Other events are told by their distance from the anchor before them.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._ended_ns: dict[tuple[int, int], int] = {}
        self.anchor()

    def anchor(self) -> None:
        with torch.cuda.device(self._device):
            event = torch.cuda.Event(enable_timing=True)
            before_ns = time.monotonic_ns()
            event.record(self._stream)
            event.synchronize()
            self.anchored_ns = time.monotonic_ns()
            self._anchor = (event, (before_ns + self.anchored_ns) // 2)

    def mark(self) -> tuple[Any, tuple[Any, int]]:
        """The place that the current stream has been queued up to, and the anchor before it."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event, self._anchor

    def ran(self, stream: tuple[int, int], mark: tuple[Any, tuple[Any, int]], took_ms: float) -> tuple[int, int]:
        """When the device had reached the mark of an operation, and when it had ended it.

        stream: names the operations that the device runs one after another. took_ms: how long this one ran.
        """
        event, (anchor, anchor_ns) = mark
        enter_ns = anchor_ns + int(anchor.elapsed_time(event) * 1e6)
        exit_ns = max(enter_ns, self._ended_ns.get(stream, 0)) + int(took_ms * 1e6)
        self._ended_ns[stream] = exit_ns
        return enter_ns, exit_ns


class TorchRecorder:
    """The recorder of this process and the groups that it follows."""

    def __init__(self, recorder: Recorder, rank: int, ranks: int) -> None:
        self.recorder, self._rank, self._ranks = recorder, rank, ranks
        self._tokens: dict[tuple[int, int], Token] = {}
        self._marks: dict[tuple[int, int], tuple[Any, tuple[Any, int]]] = {}
        """Operations on the device, by when it will have come to them."""
        self._clock: DeviceClock | None = None
        self._has_device_times = torch.cuda.is_available()
        self._watched: dict[tuple[int, int], Any] = {}
        """Work of operations that do not call back."""
        self._arrived = threading.Event()
        self._optimizer: int | None = None
        self._step = 0
        self._stage, self._replica = 0, -1
        threading.Thread(target=self._look, name="tonnage-torch", daemon=True).start()

    def follow(self, group: Any, ranks: Sequence[int]) -> None:
        """Records the operations of a process group of these ranks from now on."""
        role = role_of(group.group_desc)
        number = self.recorder.join(str(group.group_name), ranks, role)
        # A pipeline's place is the stage, that in a data-parallel group the replica; without one each rank is one.
        index = ranks.index(self._rank)
        if role is Role.PIPELINE:
            self._stage = index
        elif role is Role.DATA:
            self._replica = index
        replica = self._replica if self._replica >= 0 else self._rank
        self.recorder.place(stage=self._stage, replica=replica, ranks=self._ranks)
        if self._has_device_times:
            with self._device_times():
                group._enable_collectives_timing()
                self.recorder.bear(Times.DEVICE)
        group.register_pre_hook(_HOOK, _harmless(self._enter, number))
        group.register_post_hook(_HOOK, _harmless(self._issued, number))

    def step_done(self, optimizer: object, *_: object) -> None:
        """A step ends with that of the optimizer that was seen first."""
        self._optimizer = self._optimizer or id(optimizer)
        if id(optimizer) == self._optimizer:
            self._step += 1
            self.recorder.step(self._step)

    def raised(self, error: BaseException) -> None:
        """The job ends by an exception."""
        self.recorder.failed(None, failure_of(error, own=True))

    @contextmanager
    def _device_times(self) -> Iterator[None]:
        """What is done for the device's times. Once it fails the host's are all there is, and the records say so."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever CUDA or a backend answers: operations end all the same
            log.warning("operations are recorded without the device's times: %s", error)
            self._has_device_times, self._marks, self._clock = False, {}, None
            self.recorder.bear(Times.QUEUED)

    def _enter(self, group: int, args: Any) -> None:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return
        op, tensors = _op_of(args.name), args.input_tensors
        size = sum([each.nbytes for each in tensors])
        if not size or op == _ALL_TO_ALL:  # in which a rank may receive more than it sends
            size = max(size, sum([each.nbytes for each in args.output_tensors]))
        peer = args.root if op in _WITH_PEER and args.root >= 0 else NO_PEER
        self._tokens[group, args.op_id] = self.recorder.enter(group, op, size, peer)
        if self._has_device_times and (tensors := tensors or args.output_tensors) and tensors[0].is_cuda:
            with self._device_times():
                self._clock = self._clock or DeviceClock(tensors[0].device)
                self._marks[group, args.op_id] = self._clock.mark()

    def _issued(self, group: int, args: Any) -> None:
        key = (group, args.op_id)
        if key not in self._tokens:
            return
        if args.work is None:
            self._end(key)
            return
        if torch.cuda.is_initialized():
            self._watch(key, args.work)  # NCCL's future is done once the operation is queued on its stream
            return
        try:
            future = args.work.get_future()
        except Exception:  # noqa: BLE001 - Work::getFuture not implemented, or not as torch does it
            self._watch(key, args.work)
        else:
            future.add_done_callback(_harmless(self._done, key))

    def _done(self, key: tuple[int, int], future: Any) -> None:
        try:
            future.value()
        except RuntimeError as error:
            self._end(key, error)
        else:
            self._end(key)

    def _end(self, key: tuple[int, int], error: BaseException | None = None, work: Any = None) -> None:
        token, mark = self._tokens.pop(key, None), self._marks.pop(key, None)
        if token is None:
            return
        if error is None:
            on_device = None
            if mark is not None and self._clock is not None:
                with self._device_times():
                    on_device = self._clock.ran((key[0], token[5]), mark, work._get_duration())
            self.recorder.exit(token, on_device)
        else:
            self.recorder.failed(token, failure_of(error))

    def _watch(self, key: tuple[int, int], work: Any) -> None:
        self._watched[key] = work
        self._arrived.set()

    def _look(self) -> None:
        if self._has_device_times:
            with self._device_times():
                ctypes.CDLL(None).cudaThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
        while True:
            self._arrived.wait()
            self._arrived.clear()
            while self._watched:
                with suppress(Exception):  # whatever happens here, the job must not notice
                    self._look_once()
                time.sleep(LOOK_S)

    def _look_once(self) -> None:
        if self._clock is not None and time.monotonic_ns() - self._clock.anchored_ns >= ANCHOR_S * 1e9:
            with self._device_times():
                self._clock.anchor()
        for key, work in list(self._watched.items()):
            try:
                if not work.is_completed():
                    continue
                error = None if work.is_success() else work.exception()
            except Exception as raised:  # noqa: BLE001 - whatever a backend answers; its work holds the job's tensors
                error = raised
            del self._watched[key]
            self._end(key, error, work)


def failure_of(error: BaseException, *, own: bool = False) -> Failure:
    """Class of an error by gloo's and NCCL's words for it."""
    words = str(error).lower()
    if "timed out" in words or "timeout" in words:
        return Failure.TIMEOUT
    if any(word in words for word in ("connection", "closed by peer", "reset by peer", "remote error")):
        return Failure.CONNECTION
    return Failure.OWN if own else Failure.OTHER


def _harmless(do: Callable[[Any, Any], None], about: Any) -> Callable[[Any], None]:
    """What torch calls. Two microseconds of an operation's 25 were those of `suppress`."""

    def done(given: Any) -> None:
        try:  # noqa: SIM105 - see above
            do(about, given)
        except Exception:  # noqa: BLE001, S110 - the job must not notice
            pass

    return done


@cache
def _op_of(name: Any) -> int:
    return _OPS.get(name.name.removesuffix("_BASE").removesuffix("_COALESCED").replace("_", ""), int(Op.OTHER))


_started: list[TorchRecorder] = []


def recorder() -> Recorder | None:
    """The recorder of this process, to mark phases with; None before the first process group."""
    return _started[0].recorder if _started else None


def start(socket_path: str = "") -> bool:
    """Records all process groups that are made from now on. False, with a word in the log, where torch has no hooks.

    socket_path: the node agent's socket; by default $TONNAGE_RECORDER_SOCKET, or /run/tonnage/recorder.sock.
    """
    # The helper is torch's own affair, and may be another one in its next release.
    made = getattr(distributed_c10d, "_new_process_group_helper", None)
    if made is None or not hasattr(distributed.ProcessGroup, "register_pre_hook"):
        log.warning("torch %s has no hooks of process groups (2.15 has): nothing is recorded", torch.__version__)
        return False
    path = socket_path or os.environ.get(SOCKET_VARIABLE, SOCKET)

    def followed(*args: Any, **kwargs: Any) -> Any:
        answer = made(*args, **kwargs)
        try:
            _follow(answer[0], *args[:3], path=path)
        except Exception:
            log.warning("a process group is not recorded", exc_info=True)
        return answer

    distributed_c10d._new_process_group_helper = followed
    return True


def _follow(group: Any, size: int, _: int, ranks: Sequence[int], *, path: str) -> None:
    """ranks: of the job, in the group's order; none for the group of all, which is the first."""
    if group is None or group is distributed.GroupMember.NON_GROUP_MEMBER:
        return
    if not _started:
        run = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        made = TorchRecorder(Recorder.started(rank=group.rank(), socket_path=path, incarnation=run), group.rank(), size)
        _started.append(made)
        register_optimizer_step_post_hook(made.step_done)
        before = sys.excepthook

        def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            with suppress(Exception):
                made.raised(error)
            before(kind, error, trace)

        sys.excepthook = told
    _started[0].follow(group, list(ranks) or list(range(size)))
