"""Allowance of one pod: bytes a second that are read from its socket, so that a flood costs its sender alone."""

DATAGRAM_BYTES = 1024
"""A datagram costs at least as much, since reading a small one takes as long as reading this."""


class Allowance:
    """Token bucket."""

    def __init__(self, bytes_per_s: float, burst_s: float, now_s: float) -> None:
        self._rate, self._most = bytes_per_s, bytes_per_s * burst_s
        self._left, self._at_s = self._most, now_s

    def spend(self, size_bytes: int, now_s: float) -> None:
        """Counts a datagram; the last one may overdraw."""
        self._refill(now_s)
        self._left -= max(size_bytes, DATAGRAM_BYTES)

    def wait_s(self, now_s: float) -> float:
        """Seconds until reading may go on; 0: now."""
        self._refill(now_s)
        return max(0.0, -self._left / self._rate)

    def _refill(self, now_s: float) -> None:
        self._left = min(self._most, self._left + self._rate * max(0.0, now_s - self._at_s))
        self._at_s = max(self._at_s, now_s)
