"""Outbox of frames: bounded, shared fairly between pods, the oldest of the fullest pod dropped first."""

from collections import deque
from collections.abc import Mapping
from threading import Lock

MOST_BYTES = 8 * 1024 * 1024
"""Frames that wait at most: five minutes of 8 ranks at 100 operations a second, while no controller answers."""


class Outbox:
    """Frames on their way. One thread adds and another takes."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._waiting: dict[str, deque[bytes]] = {}
        self._bytes: dict[str, int] = {}
        self._total = 0
        self._lock = Lock()
        self.dropped = 0

    @property
    def waiting_bytes(self) -> int:
        return self._total

    def add(self, pod: str, frame: bytes) -> None:
        """Adds a frame of a pod; drops what no longer fits, from the pod that has the most."""
        with self._lock:
            self._waiting.setdefault(pod, deque()).append(frame)
            self._count(pod, len(frame))
            while self._total > self._most:
                fullest = max(self._bytes, key=lambda each: self._bytes[each])
                self._count(fullest, -len(self._waiting[fullest].popleft()))
                self._forget_if_empty(fullest)
                self.dropped += 1

    def take(self, most_bytes: int) -> Mapping[str, bytes]:
        """The oldest frames, pod by pod in turn, together at most this long; whole frames by pod."""
        taken: dict[str, list[bytes]] = {}
        left = most_bytes
        with self._lock:
            pods = deque(self._waiting)
            while pods:
                pod = pods.popleft()
                frame = self._waiting[pod][0]
                if len(frame) > left:
                    break
                self._waiting[pod].popleft()
                self._count(pod, -len(frame))
                left -= len(frame)
                taken.setdefault(pod, []).append(frame)
                if not self._forget_if_empty(pod):
                    pods.append(pod)
            for pod in taken:  # who was served waits behind the others
                if pod in self._waiting:
                    self._waiting[pod] = self._waiting.pop(pod)
        return {pod: b"".join(frames) for pod, frames in taken.items()}

    def _count(self, pod: str, size_bytes: int) -> None:
        self._bytes[pod] = self._bytes.get(pod, 0) + size_bytes
        self._total += size_bytes

    def _forget_if_empty(self, pod: str) -> bool:
        if self._waiting[pod]:
            return False
        del self._waiting[pod], self._bytes[pod]
        return True
