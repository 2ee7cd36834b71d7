"""What the cases in guests have in common. Runs inside."""

import importlib.machinery
import importlib.util
import pathlib
import socket
import struct
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LAUNCHER = f"{HERE.parent / 'net' / 'rsh.py'} call"


def tests_run():
    """tests/run as a module."""
    loader = importlib.machinery.SourceFileLoader("ferry_tests_run", str(HERE.parent / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Names:
    """What the topology server says of all names of a service type: {(instance, node, port)}
    that are published. Type 0 is of nodes themselves. `history`: each (time, event, instance),
    where event 1 is publishing."""

    def __init__(self, kind):
        self.known, self.history, self.news = set(), [], threading.Condition()
        self.socket = socket.socket(socket.AF_TIPC, socket.SOCK_SEQPACKET)
        self.socket.connect((socket.TIPC_ADDR_NAME, 1, 1, 0))
        self.socket.send(struct.pack("=5I8s", kind, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, b"names"))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            event, lower, _, port, node = struct.unpack("=5I28x", self.socket.recv(48))
            with self.news:
                self.history.append((time.monotonic(), event, lower))
                (self.known.add if event == 1 else self.known.discard)((lower, node, port))
                self.news.notify_all()

    def wait(self, condition, limit):
        """Until the known names fulfil it; returns them, or None."""
        with self.news:
            return (
                set(self.known)
                if self.news.wait_for(lambda: condition(self.known), limit)
                else None
            )


class Tap:
    """Looks for a word in every frame that goes through a device while the block runs."""

    def __init__(self, device, word):
        self.word, self.frames, self.found, self.bytes = word.encode(), 0, 0, 0
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.socket.bind((device, 0))
        self.socket.settimeout(0.2)

    def __enter__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self):
        while True:
            try:
                frame = self.socket.recv(1 << 16)
            except TimeoutError:
                if self.over.is_set():
                    return
                continue
            self.frames += 1
            self.bytes += len(frame)
            self.found += self.word in frame

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.socket.close()
