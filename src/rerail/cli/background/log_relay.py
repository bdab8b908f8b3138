"""A process between a worker's output and its log: it redacts secrets, and outlives the worker (contract T9).

Started as a program, on the standard library alone: `python -I -S -B log_relay.py SOCKET`.

Rules of this file:
- Descriptors 1 and 2 of the worker are a pipe to this process, so everything is redacted: prints, `os.write`, children.
- It ends once the worker and every child have closed the pipe: a crash's last lines are kept; no child gets SIGPIPE.
- A line is written once it is whole, since a secret may come in several writes. A very long one is written in pieces,
  each without the end that may begin a secret.
- The socket brings JSON lines: `{"patterns": […]}` replaces what is redacted; `{}` comes with a pipe and its log.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys

CHUNK = 1 << 16
HELD = 1 << 13  # bytes at the end of a piece that wait for the next one


class Relay:
    """Pipes to read, each with its log."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders: socket.socket | None = orders
        self._said, self._fds = b"", list[int]()
        self._logs: dict[int, int] = {}
        self._parts: dict[int, bytes] = {}
        self._secrets: list[re.Pattern[str]] = []

    def serve(self) -> None:
        """Relay until the worker and its children are gone."""
        while self._orders or self._logs:
            waiting = [*self._logs, *([self._orders.fileno()] if self._orders else [])]
            ready = select.select(waiting, [], [])[0]
            for pipe in [one for one in ready if one in self._logs]:
                self._read(pipe)
            self._obey()

    def _obey(self) -> None:
        """Read what the worker has sent so far: it tells a secret before it, or a child, can print it."""
        while self._orders and select.select([self._orders], [], [], 0)[0]:
            try:
                data, fds, _, _ = socket.recv_fds(self._orders, CHUNK, 8)
            except OSError:
                data, fds = b"", []
            if not data:
                self._orders.close()
                self._orders = None
            self._fds += fds
            *lines, self._said = (self._said + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "patterns" in order:
                    self._secrets = [re.compile(one) for one in order["patterns"]]
                else:
                    pipe, log = self._fds[:2]
                    del self._fds[:2]
                    self._logs[pipe], self._parts[pipe] = log, b""

    def _read(self, pipe: int) -> None:
        data = os.read(pipe, CHUNK)
        self._obey()
        text = self._parts[pipe] + data
        if not data:
            whole, rest = text, b""
        elif len(text) > CHUNK and b"\n" not in text[-CHUNK:]:
            clean = self._clean(text)  # before it is cut: what begins a secret is in the rest
            whole, rest = clean[:-HELD], clean[-HELD:]
        else:
            whole, end, rest = text.rpartition(b"\n")
            whole += end
        self._parts[pipe] = rest
        self._write(self._logs[pipe], self._clean(whole))
        if not data:
            os.close(pipe)
            os.close(self._logs.pop(pipe))
            del self._parts[pipe]

    def _clean(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        for secret in self._secrets:
            text = secret.sub("***", text)
        return text.encode("utf-8", "surrogateescape")

    @staticmethod
    def _write(log: int, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk is no reason to stop
            while data:
                data = data[os.write(log, data) :]


def main() -> None:
    """Serve; the signals of a terminal, and those for the worker, are not for this process."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Relay(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
