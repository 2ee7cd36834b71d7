#!/usr/bin/env python3
"""What uninvited machines do. Runs inside a host of hosts.py and says at the end, as JSON, what
came of it.

stranger.py bother ADDRESS PORT [ADDRESS PORT]...    garbage, silence, crumbs and resets at these
ports until standard input ends stranger.py flood ADDRESS PORT [ADDRESS PORT]...     connections as
fast as they go, and SYN packets from nowhere stranger.py replay
reads recorded openings as JSON lines, plays each as it was recorded stranger.py listen [WORD]
notes the first bytes of all TCP connections that pass; counts packets with WORD
"""

import json
import os
import random
import select
import socket
import struct
import sys
import threading
import time

# crates/auth/src/message.rs.
MAGIC = b"\x89FERRY"
VERSION = b"\2\0"
HELLO_BYTES = 76
RESPONSE_BYTES = 56
FIRST = 4096  # bytes kept of each direction of a connection


def ended():
    """Has standard input ended?"""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def connect(address, port, patience=2.0):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(patience)
    s.connect((address, port))
    return s


def drain(s, patience):
    """What comes until the other side closes; and whether it did."""
    s.settimeout(patience)
    got = b""
    try:
        while piece := s.recv(65536):
            got += piece
        return got, True
    except TimeoutError:
        return got, False
    except OSError:
        return got, True


def openings(dice):
    """Bytes that are not the beginning of a conversation with Ferry."""
    noise = dice.randbytes
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"SSH-2.0-OpenSSH_9.2\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(300)
    yield noise(1)
    yield noise(HELLO_BYTES)
    yield noise(1 << 20)
    yield b"\0" * 4096
    rest = HELLO_BYTES - len(MAGIC + VERSION)
    yield MAGIC + VERSION + noise(rest)  # a hello with everything but the key
    yield MAGIC + VERSION + noise(5000)
    yield MAGIC + b"\1\0" + noise(88)  # of another version
    yield MAGIC + VERSION + b"\0" * rest


def bother(targets):
    dice = random.Random(5)
    told = {"connections": 0, "answered": 0, "still open": 0, "refused": 0, "resets": 0}
    silent = []
    while not ended():
        address, port = dice.choice(targets)
        for opening in openings(dice):
            try:
                s = connect(address, port)
            except OSError:
                told["refused"] += 1
                continue
            told["connections"] += 1
            kind = dice.randrange(5)
            try:
                if kind == 0:  # crumbs
                    for byte in opening[:20]:
                        s.sendall(bytes([byte]))
                elif kind == 1:  # nothing at all, or a part, and then silence
                    s.sendall(
                        opening[: dice.choice([0, 3, 8, 50])] if opening.startswith(MAGIC) else b""
                    )
                    silent.append(s)
                    while len(silent) > 200:
                        silent.pop(0).close()
                    continue
                else:
                    s.sendall(opening)
            except OSError:
                pass  # closed while we spoke: as it should be
            if kind == 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                told["resets"] += 1
            elif kind > 2 and len(opening) >= HELLO_BYTES:
                got, closed = drain(s, 3.0)
                told["answered"] += bool(got)
                told["still open"] += not closed
            s.close()
            if ended():
                break
            time.sleep(
                0.002
                # leaves the hosts' two cores to the job: this is about nonsense, `flood` is about
                # numbers
            )
    for s in silent:
        s.close()
    return told


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn(source, target, port, dice):
    """A SYN as a whole IPv4 packet."""
    src, dst = socket.inet_aton(source), socket.inet_aton(target)
    head = struct.pack(
        ">HHIIBBHHH",
        dice.randrange(1024, 65536),
        port,
        dice.randrange(1 << 32),
        0,
        5 << 4,
        2,
        64240,
        0,
        0,
    )
    sum_ = checksum(src + dst + struct.pack(">BBH", 0, 6, len(head)) + head)
    head = head[:16] + struct.pack(">H", sum_) + head[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40, dice.randrange(65536), 0, 64, 6, 0) + src + dst
    return ip + head


def flood(targets):
    dice = random.Random(6)
    told = {"connections": 0, "syns": 0, "refused": 0, "answered": 0}
    raw = None
    if any("." in address for address, _ in targets):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    kept = []
    while not ended():
        address, port = dice.choice(targets)
        for _ in range(20):
            try:
                s = connect(address, port, 0.5)
                s.setblocking(False)
                told["connections"] += 1
                kept.append(s)
            except OSError:
                told["refused"] += 1
        while len(kept) > 500:
            s = kept.pop(0)
            try:
                told["answered"] += bool(s.recv(1))
            except OSError:
                pass
            s.close()
        if raw is not None and "." in address:
            for _ in range(20):
                try:
                    raw.sendto(
                        syn(f"10.77.0.{dice.randrange(130, 250)}", address, port, dice),
                        (address, 0),
                    )
                    told["syns"] += 1
                except OSError:
                    pass
        time.sleep(0.005)
    for s in kept:
        s.close()
    return told


def replay():
    """Each line: address, port, and what the caller said then, in hex. It is said again, whole
    at once or as the handshake goes."""
    told = {"played": 0, "answers": 0, "bytes after finish": 0, "still open": 0, "refused": 0}
    for line in sys.stdin:
        recorded = json.loads(line)
        said = bytes.fromhex(recorded["said"])
        for whole in (True, False):
            try:
                s = connect(recorded["address"], recorded["port"])
            except OSError:
                told["refused"] += 1
                continue
            told["played"] += 1
            try:
                if whole:
                    s.sendall(said)
                    got, closed = drain(s, 3.0)
                    told["answers"] += bool(got)
                    told["bytes after finish"] += max(len(got) - RESPONSE_BYTES, 0)
                else:
                    s.sendall(said[:HELLO_BYTES])
                    s.settimeout(3.0)
                    answer = s.recv(RESPONSE_BYTES, socket.MSG_WAITALL)
                    told["answers"] += len(answer) == RESPONSE_BYTES
                    s.sendall(said[HELLO_BYTES:])
                    got, closed = drain(s, 3.0)
                    told["bytes after finish"] += len(got)
                told["still open"] += not closed
            except OSError:
                pass
            s.close()
    return told


def segment(frame):
    """(connection, sequence number, SYN, payload) of an Ethernet frame that carries TCP."""
    kind, at = struct.unpack_from(">H", frame, 12)[0], 14
    if kind == 0x0800:
        if frame[at + 9] != 6:
            return None
        length, head = struct.unpack_from(">H", frame, at + 2)[0], (frame[at] & 15) * 4
        source, target = socket.inet_ntoa(frame[at + 12 : at + 16]), socket.inet_ntoa(
            frame[at + 16 : at + 20]
        )
        end = (
            at + length if length else len(frame)
        )  # 0: offloaded and larger than the field can say
    elif kind == 0x86DD:
        if frame[at + 6] != 6:
            return None
        length, head = struct.unpack_from(">H", frame, at + 4)[0], 40
        source = socket.inet_ntop(socket.AF_INET6, frame[at + 8 : at + 24])
        target = socket.inet_ntop(socket.AF_INET6, frame[at + 24 : at + 40])
        end = at + 40 + length if length else len(frame)
    else:
        return None
    at += head
    sport, dport, seq = struct.unpack_from(">HHI", frame, at)
    syn = frame[at + 13] & 2
    return (
        (source, sport, target, dport),
        seq,
        bool(syn),
        frame[at + (frame[at + 12] >> 4) * 4 : end],
    )


def listen(word):
    """Until standard input ends."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    SO_RCVBUFFORCE = 33
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
    print("ready", flush=True)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    s.settimeout(0.1)
    first, start, packets, found = {}, {}, 0, 0
    while True:
        try:
            frame, where = s.recvfrom(1 << 17)
        except TimeoutError:
            frame = None
        # Whoever looks for a word looks at everything; for how connections begin, what has been
        # seen by now is enough.
        if over.is_set() and (frame is None or not word):
            break
        if frame is None:
            continue
        if where[2] == 4 or len(frame) < 54:  # on its way out again
            continue
        packets += 1
        found += bool(word) and word in frame
        parsed = segment(frame)
        if parsed is None:
            continue
        connection, seq, syn, payload = parsed
        if syn:
            start[connection] = seq + 1 & 0xFFFFFFFF
            first[connection] = bytearray()
        elif payload and connection in start:
            at = seq - start[connection] & 0xFFFFFFFF
            kept = first[connection]
            if at <= len(kept) < FIRST:
                kept[at : at + len(payload)] = payload
                del kept[FIRST:]
    lost = struct.unpack("II", s.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS
    flows = [
        {"from": c[0], "sport": c[1], "to": c[2], "dport": c[3], "first": bytes(b).hex()}
        for c, b in first.items()
    ]
    return {"packets": packets, "lost": lost, "found": found, "flows": flows}


def main():
    job, rest = sys.argv[1], sys.argv[2:]
    if job in ("bother", "flood"):
        targets = [(rest[i], int(rest[i + 1])) for i in range(0, len(rest), 2)]
        told = (bother if job == "bother" else flood)(targets)
    elif job == "replay":
        told = replay()
    elif job == "listen":
        told = listen(os.fsencode(rest[0]) if rest else None)
    else:
        sys.exit(__doc__)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
