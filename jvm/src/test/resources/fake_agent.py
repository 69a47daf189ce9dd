"""An agent without torch and without mpca, for the tests of `org.mpca.agent`: the standard library alone.

usage: fake_agent.py AGENT INCARNATION [FLAG]...

It "trains" by adding 1 to all of its 30 elements (three shards of 10) every millisecond, answers SnapshotRequest, Install and
SaveState, and returns how often it was interrupted. Each FLAG bends it in one way; they are told where they act. Runs on
Python 3.8 too.
"""

import ctypes
import hashlib
import mmap
import os
import select
import signal
import struct
import sys
import time
from array import array

AGENT, INCARNATION, FLAGS = int(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3:])
SHARDS, SIZE, SLOT = 3, 10, 4096
HEADER = struct.Struct("<IHHQQQQI20x")


def pack(value):
    if value is True or value is False:
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xdb" + struct.pack(">I", len(data)) + data
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        return b"\xdf" + struct.pack(">I", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise TypeError(type(value))


def unpack(data, at=0):
    """One value and where it ended; the forms that the executor writes."""
    tag = data[at]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if 0xA0 <= tag <= 0xBF or tag == 0xD9:
        size, at = (tag & 0x1F, at) if tag != 0xD9 else (data[at], at + 1)
        return data[at : at + size].decode(), at + size
    if 0x90 <= tag <= 0x9F:
        items = []
        for _ in range(tag & 0x0F):
            item, at = unpack(data, at)
            items.append(item)
        return items, at
    if 0x80 <= tag <= 0x8F:
        fields = {}
        for _ in range(tag & 0x0F):
            key, at = unpack(data, at)
            fields[key], at = unpack(data, at)
        return fields, at
    whole = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    form = {0xCB: ">d", **whole}[tag]
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)


ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the thread that started us
control_in, control_out = os.dup(0), os.dup(1)
os.dup2(2, 1)
os.setpgid(0, 0)


def send(code, **fields):
    body = pack([code, fields])
    data = struct.pack(">I", len(body)) + body
    while data:
        data = data[os.write(control_out, data) :]


def read(size):
    data = b""
    while len(data) < size:
        more = os.read(control_in, size - len(data))
        if not more:
            os._exit(0)  # the executor is gone
        data += more
    return data


def receive():
    code, fields = unpack(read(struct.unpack(">I", read(4))[0]))[0]
    return code, fields


assert receive() == (1, {}), "first comes Start"
print("line one\nline two", flush=True)
if "exit-7" in FLAGS:  # dies before it attaches
    print("cannot import torch", file=sys.stderr, flush=True)
    sys.exit(7)
if "silent" in FLAGS:  # never attaches
    time.sleep(600)
if "garbage" in FLAGS:  # breaks the protocol
    os.write(control_out, b"\xff" * 8)
    time.sleep(600)
if "worker" in FLAGS and os.fork() == 0:  # a data worker, which holds the pipes open
    print("worker", os.getpid(), flush=True)
    time.sleep(600)

x = array("f", [0.0] * (SHARDS * SIZE))
steps, interruptions, seq, since, training, owed = 0, 0, 0, [0] * SHARDS, False, []
number, asking, held, states = 0, None, [], {}


def lay():
    """A new segment, and Hello for it."""
    global segment
    segment_fd = os.memfd_create("fake-agent")
    os.posix_fallocate(segment_fd, 0, SLOT * (SHARDS + 1))
    segment = mmap.mmap(segment_fd, SLOT * (SHARDS + 1))
    send(
        17,
        agent=AGENT,
        incarnation=INCARNATION,
        pid=os.getpid() + ("liar" in FLAGS),
        python="3",
        torch="none",
        mpca="0",
        x0_hash="0",
        layout=[],
        local={},
        tied={},
        bounds=[SIZE * s for s in range(SHARDS + 1)],
        parameters=SHARDS * SIZE,
        segment_fd=segment_fd,
        segment_bytes=SLOT * (SHARDS + 1),
        slots=[SLOT * s for s in range(SHARDS + 1)],
    )


lay()
if "fail" in FLAGS:  # the user's code raises
    send(22, error="ValueError: x", traceback="Traceback ...\nValueError: x")
    sys.exit(1)


def installed(shard, version, mode):
    data = segment[SLOT * (shard + 1) + 64 :][: 4 * SIZE]
    header = HEADER.unpack_from(segment, SLOT * (shard + 1))
    assert (header[2], header[3] % 2, header[4]) == (shard, 0, version), header
    x[shard * SIZE : (shard + 1) * SIZE] = array("f", data)
    send(19, shard=shard, version=version, mode=mode, start=time.time(), end=time.time())


def fill(shard, version):
    """Write a shard into the snapshot slot; the updates since it was written last."""
    global seq
    seq += 2
    data = x[shard * SIZE : (shard + 1) * SIZE].tobytes()
    segment[:64] = HEADER.pack(0x4C53504D, 1, shard, seq, version, since[shard], len(data), 0)
    segment[64 : 64 + len(data)] = data
    updates, since[shard] = since[shard], 0
    return updates


def ask(shard, snapshot=None):
    """Send an Exchange; behind a Snapshot, if there is one, whose bytes it has overwritten."""
    global number, asking
    number, asking = number + 1, shard
    updates = fill(shard, number)
    if snapshot:
        send(18, **snapshot)
    send(25, number=number, shard=shard, updates=updates, version=7, start=time.time(), end=time.time())


def save(number):
    """Answer a SaveState: some hundred kilobytes that name the agent and the number."""
    print("saves", number, flush=True)
    if "die-when-saving" in FLAGS:
        os.kill(os.getpid(), signal.SIGKILL)
    if "saves-never" in FLAGS:
        return
    if "cannot-save" in FLAGS:
        send(26, number=number, fd=-1, bytes=0, sha256="", error="TypeError: cannot pickle a lock")
        return
    data = b"%d/%d saves %d. " % (AGENT, INCARNATION, number) * 50000
    states[number] = fd = os.memfd_create("fake-state")
    assert os.write(fd, data) == len(data)
    said = hashlib.sha256(data).hexdigest()
    if "saves-damaged" in FLAGS:
        said = hashlib.sha256(b"").hexdigest()
    if "saves-nothing" in FLAGS:
        fd = 999
    size = len(data) + ("saves-less" in FLAGS)
    send(26, number=number + ("saves-another" in FLAGS), fd=fd, bytes=size, sha256=said, error="")


while True:
    if select.select([control_in], [], [], 0.001)[0]:
        code, fields = receive()
        if code == 2:
            training = True
            while owed:
                installed(*owed.pop(0))
        elif code == 3:
            if "die-when-asked" in FLAGS:
                os.kill(os.getpid(), signal.SIGKILL)
            if asking is not None and "answers-asking" not in FLAGS:
                held.append(fields)
                continue
            interruptions += 1
            shard, start = fields["shard"], time.time()
            if "nan" in FLAGS:
                x[shard * SIZE + 3] = float("nan")
            updates = fill(shard, fields["cycle"])
            snapshot = {"cycle": fields["cycle"], "shard": shard, "updates": updates, "start": start, "end": time.time()}
            if "asks-behind-snapshot" in FLAGS and number == 0:
                ask(1, snapshot)
                continue
            send(18, **snapshot)
            if "die-after-snapshot" in FLAGS:
                os.kill(os.getpid(), signal.SIGKILL)
        elif code == 4:
            arrival = (fields["shard"], fields["version"], fields["mode"])
            if "install-at-begin" in FLAGS and not training:  # slow to read its arrivals
                owed.append(arrival)
            else:
                installed(*arrival)
                if arrival[0] == asking:
                    print("answered", arrival[1], arrival[2], fields["alpha"], x[asking * SIZE], flush=True)
                    asking = None
                    for one in held:
                        updates = fill(one["shard"], one["cycle"])
                        send(18, cycle=one["cycle"], shard=one["shard"], updates=updates, start=time.time(), end=time.time())
                    held.clear()
        elif code == 6:
            print("readers", fields["version"], fields["readers"], file=sys.stderr, flush=True)
        elif code == 8:
            SHARDS, SIZE, since = fields["shards"], len(x) // fields["shards"], [0] * fields["shards"]
            lay()
        elif code == 9:
            save(fields["number"])
        elif code == 10:
            os.close(states.pop(fields["number"]))
            print("taken", fields["number"], flush=True)
            if "die-when-taken" in FLAGS:
                os.kill(os.getpid(), signal.SIGKILL)
        elif code == 5:
            send(21, returns=str(interruptions).encode())
            if "lingers" in FLAGS:  # a thread of the user's that does not end
                time.sleep(600)
            if "prints-at-its-end" in FLAGS:  # enough of it that Finished is read meanwhile
                for n in range(5000):
                    print("line", n, flush=True)
                print("the last line", flush=True)
            sys.exit(0)
    elif asking is not None:
        pass  # it waits
    elif training and "asks" in FLAGS and steps >= 5 and number == 0:
        ask(1)
    elif "still" not in FLAGS:  # "still": its parameters stay what was installed
        steps += 1
        since = [one + 1 for one in since]
        x = array("f", [one + 1 for one in x])
        if steps % 20 == 0:
            counted = {"steps": steps, "samples": steps, "train_s": 0.0, "pause_s": 0.0, "metrics": {"loss": 0.5}}
            send(20, **counted, data=[], function="loop", bad=[], bad_dropped=0)
