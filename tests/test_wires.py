"""The damaged network of the tests does to packets what it says, and counts it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bench.support import needs_namespaces
from tests.support.wires import Damage, DamagedNetwork

pytestmark = [pytest.mark.root, pytest.mark.quiet]

#: Echoes datagrams; over TCP the damage would be mended by the kernel before anyone sees it.
ECHO = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("0.0.0.0", 7))
    print("up", flush=True)
    while True:
        data, peer = s.recvfrom(100)
        s.sendto(data, peer)
"""
#: Sends so many numbers and prints what came back, in its order, and the seconds until the first did.
ASK = """
import socket, sys, time
host, count = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(0.5)
    began, first, got = time.monotonic(), 0.0, []
    for number in range(count):
        s.sendto(str(number).encode(), (host, 7))
    try:
        while True:
            got.append(int(s.recv(100)))
            first = first or time.monotonic() - began
    except TimeoutError:
        print(first, *got)
"""


@pytest.fixture(scope="module")
def net() -> Iterator[DamagedNetwork]:
    """Two nodes; at the end neither they nor what runs on them nor a device is left."""
    needs_namespaces()
    before = _links()
    with DamagedNetwork(["a", "b"]) as net:
        echo = subprocess.Popen(net.command("b", [sys.executable, "-c", ECHO]), stdout=subprocess.PIPE, text=True)
        assert echo.stdout is not None
        assert echo.stdout.readline() == "up\n"
        yield net
        assert len(_links() - before) == 2
    assert echo.wait(10) == -signal.SIGKILL
    echo.stdout.close()
    assert _links() == before


def _links() -> set[str]:
    """Namespaces, and devices that are in none."""
    seen = [["ip", "netns"], ["ip", "-o", "link"]]
    return {line for command in seen for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()}


def ask(net: DamagedNetwork, damage: Damage, count: int = 200) -> tuple[float, list[int]]:
    net.damage = damage
    net.done.clear()
    command = net.command("a", [sys.executable, "-c", ASK, net.address("b"), str(count)])
    first, *got = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    return float(first), [int(one) for one in got]


def test_without_damage_everything_arrives_in_order(net: DamagedNetwork) -> None:
    assert ask(net, Damage())[1] == list(range(200))
    assert dict(net.done) == {"passed": 400}


def test_a_delay_is_there_both_ways(net: DamagedNetwork) -> None:
    first, got = ask(net, Damage(delay_s=0.1))
    assert first >= 0.2
    assert got == list(range(200))
    assert net.done["delayed"] == 400


def test_what_is_lost_does_not_come_and_is_counted(net: DamagedNetwork) -> None:
    _, got = ask(net, Damage(loss=0.2))
    assert len(set(range(200)) - set(got)) == net.done["lost"] > 10


def test_some_overtake_and_some_come_twice(net: DamagedNetwork) -> None:
    _, got = ask(net, Damage(delay_s=0.05, jump=0.1, twice=0.1))
    assert sorted(set(got)) == list(range(200))
    assert [one for one in got if got.count(one) > 1], "none came twice"
    assert got != sorted(got)
    assert net.done["jumped"] > 5
    assert net.done["twice"] > 5


def test_one_way_is_cut_the_other_is_not(net: DamagedNetwork) -> None:
    assert ask(net, Damage(cut=frozenset({("b", "a")})), 20)[1] == []
    assert (net.done["cut"], net.done["passed"]) == (20, 20)
