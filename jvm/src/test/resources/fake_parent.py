"""A parent of fake agents that has imported nothing, for the tests of `org.mpca.agent`: the standard library alone.

usage: fake_parent.py SCRIPT AGENT INCARNATION [FLAG]...

It forks SCRIPT with the words behind it, and says what `mpca/agent/parent.py` says. FLAG "refuses": it forks nobody; "full": it
makes no pipes; "dies": it ends by SIGKILL when it is asked to fork for the first time; "spares": it ends no agent, as when the
kernel holds one.
"""

import contextlib
import os
import runpy
import select
import shutil
import signal
import struct
import sys
import tempfile

FLAGS = set(sys.argv[4:])
ENDS = (("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY))
control_in, control_out = os.dup(0), os.dup(1)
os.dup2(2, 1)
os.setpgid(0, 0)
folder = tempfile.mkdtemp(prefix="mpca-fake-")
wake_read, wake_write = os.pipe()
os.set_blocking(wake_write, False)
signal.set_wakeup_fd(wake_write)
signal.signal(signal.SIGCHLD, lambda *_: None)
children, told, held = {}, set(), {}


def say(word, *rest):
    body = b"\x93" + bytes([0xA0 | len(word)]) + word.encode()
    for one in rest:
        body += (
            b"\xd3" + struct.pack(">q", one) if isinstance(one, int) else b"\xdb" + struct.pack(">I", len(one)) + one.encode()
        )
    os.write(control_out, struct.pack(">I", len(body)) + body)


def fork(number):
    stem = f"{folder}/{number}"
    ends = [os.open(f"{stem}.{name}", way) for name, way in ENDS]
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in [*held.pop(number), control_in, control_out, wake_read, wake_write]:
            os.close(fd)
        for standard, fd in enumerate(ends):
            os.dup2(fd, standard)
            os.close(fd)
        sys.argv[:] = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit(0)
    for fd in ends + held.pop(number):
        os.close(fd)
    for name, _ in ENDS:
        os.unlink(f"{stem}.{name}")
    children[number] = pid
    say("forked", number, pid)


def answer(word, number):
    if word == "here":
        say("here", number, 0)
    elif word == "open" and "full" in FLAGS:
        say("refused", number, "as its flag says")
    elif word == "open":
        for name, _ in ENDS:
            os.mkfifo(f"{folder}/{number}.{name}")
        held[number] = [os.open(f"{folder}/{number}.{name}", os.O_RDWR) for name, _ in ENDS]
        say("opened", number, f"{folder}/{number}")
    elif word == "fork" and "dies" in FLAGS:
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "fork" and "refuses" in FLAGS:
        say("refused", number, "as its flag says")
    elif word == "fork":
        fork(number)
    elif number in children:
        for kill in (os.killpg, os.kill) if "spares" not in FLAGS else ():
            with contextlib.suppress(OSError):
                kill(children[number], signal.SIGKILL)
        if word == "reap" and number in told:
            os.waitpid(children.pop(number), 0)


say("ready", os.getpid(), folder)
while True:
    seen, _, _ = select.select([control_in, wake_read], [], [])
    if wake_read in seen:
        os.read(wake_read, 4096)
        for number, pid in children.items():
            ended = number not in told and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended:
                told.add(number)
                say("ended", number, ended.si_status + (0 if ended.si_code == os.CLD_EXITED else 128))
    if control_in in seen:
        length = os.read(control_in, 4)
        if not length:
            shutil.rmtree(folder)
            sys.exit(0)
        body = os.read(control_in, struct.unpack(">I", length)[0])
        size = body[1] & 0x1F
        answer(body[2 : 2 + size].decode(), body[2 + size])
