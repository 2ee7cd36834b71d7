#!/usr/bin/env python3
"""What runs in the namespaces of tests/ethernet/check.

    inside.py all NAME     in node 1: has each of the three nodes do the two below
    inside.py echo TO...   echo requests to these nodes; each answer has the bytes that were sent
    inside.py take FROM    takes COPY_BYTES over TCP, and checks them against those of node FROM
    inside.py give TO FROM gives node TO the bytes of node FROM
"""

import os
import random
import select
import socket
import struct
import subprocess
import sys

NODES = 3
COPY_BYTES = 10_000_000
PORT = 5000
# Bytes of echo requests: one frame, a whole one, and several after the kernel cuts the packet.
ECHO_BYTES = (0, 56, 4000, 20000)
LIMIT_SECONDS = 30


def address(node):
    return f"10.26.0.{node}"


def checksum(packet):
    packet += b"\0" * (len(packet) % 2)
    total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo(node, length, number):
    """Sends an echo request to a node and waits for its answer (RFC 792)."""
    payload = random.Random(number).randbytes(length)
    identity = os.getpid() & 0xFFFF
    head = struct.pack("!BBHHH", 8, 0, 0, identity, number)
    head = struct.pack("!BBHHH", 8, 0, checksum(head + payload), identity, number)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        raw.sendto(head + payload, (address(node), 0))
        while select.select([raw], [], [], LIMIT_SECONDS)[0]:
            packet, (sender, _) = raw.recvfrom(1 << 16)
            body = packet[(packet[0] & 15) * 4 :]
            kind, _, _, whose, which = struct.unpack("!BBHHH", body[:8])
            if (kind, whose, which) == (0, identity, number):
                assert sender == address(node), f"{sender} answers for node {node}"
                assert body[8:] == payload, f"node {node}: other bytes in an echo of {length}"
                return
    raise AssertionError(f"node {node} does not answer an echo of {length} bytes")


def content(node):
    return random.Random(node).randbytes(COPY_BYTES)


def take(giver):
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(LIMIT_SECONDS)
        taken = bytearray()
        while part := connection.recv(1 << 20):
            taken += part
    assert taken == content(giver), f"{len(taken)} bytes from node {giver} are not what it sent"


def give(taker, giver):
    with socket.create_connection((address(taker), PORT), LIMIT_SECONDS) as connection:
        connection.sendall(content(giver))


def on(name, node, *arguments, **more):
    """Starts this program in a node's namespace."""
    command = ["nsenter", f"--net=/run/netns/{name}{node}", sys.executable, __file__]
    return subprocess.Popen([*command, *map(str, arguments)], text=True, **more)


def everything(name):
    nodes = range(1, NODES + 1)
    following = {node: node % NODES + 1 for node in nodes}
    echoes = [on(name, node, "echo", *(n for n in nodes if n != node)) for node in nodes]
    assert [e.wait() for e in echoes] == [0] * NODES, "echoes"
    takers = [
        on(name, following[node], "take", node, stdout=subprocess.PIPE) for node in nodes
    ]
    for taker in takers:
        assert taker.stdout.readline() == "ready\n"
    givers = [on(name, node, "give", following[node], node) for node in nodes]
    ends = [p.wait() for p in [*givers, *takers]]
    assert ends == [0] * len(ends), "copies"


def main():
    task, *arguments = sys.argv[1:]
    if task == "all":
        everything(arguments[0])
    elif task == "echo":
        for number, length in enumerate(ECHO_BYTES):
            for node in arguments:
                echo(int(node), length, number)
    elif task == "take":
        take(int(arguments[0]))
    else:
        give(*map(int, arguments))


if __name__ == "__main__":
    main()
