#!/usr/bin/env python3
"""The least that can stand for ssh where it has to go through the wire: no keys, no terminal, one
command a connection.

rsh.py serve                     answers in a host; each command gets the connection as its input
and output rsh.py call hN COMMAND...        what mpiexec runs
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading

PORT = 5140
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": os.environ.get("HOME", "/"),
}


def serve():
    with socket.create_server(("0.0.0.0", PORT)) as server:
        print("ready", flush=True)
        while True:
            threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()


def answer(caller):
    """Runs what one caller says. What the command leaves unread is read here: a socket closed
    before that resets the connection, and with it goes what the command said last."""
    with caller, contextlib.suppress(OSError):
        with caller.makefile("rb", buffering=0) as words:
            command = os.fsdecode(words.readline()).rstrip("\n")
        subprocess.run(
            ["sh", "-c", command],
            cwd="/",
            env=ENVIRONMENT,
            stdin=caller,
            stdout=caller,
            stderr=caller,
            start_new_session=True,
        )
        caller.shutdown(socket.SHUT_WR)
        while caller.recv(1 << 16):
            pass


def call(host, command):
    with socket.create_connection((f"10.77.0.{host.removeprefix('h')}", PORT), timeout=30) as there:
        there.settimeout(None)
        there.sendall(os.fsencode(command) + b"\n")
        watched = [there, 0]
        while True:
            for ready in select.select(watched, [], [])[0]:
                if ready is there:
                    piece = there.recv(1 << 16)
                    if not piece:
                        return
                    while piece:
                        piece = piece[os.write(1, piece) :]
                else:
                    piece = os.read(0, 1 << 16)
                    if piece:
                        there.sendall(piece)
                    else:
                        there.shutdown(socket.SHUT_WR)
                        watched.remove(0)


if sys.argv[1:] == ["serve"]:
    serve()
elif len(sys.argv) > 3 and sys.argv[1] == "call":
    call(sys.argv[2], " ".join(sys.argv[3:]))
else:
    sys.exit(__doc__)
