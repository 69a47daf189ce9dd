"""Networks of a bench: made, reached, limited, removed, whoever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpca.cli.bench.net.network import PREFIX, Network, check, sweep
from mpca.errors import EnvironmentRefused
from tests.bench.support import needs_namespaces
from tests.support.fake_executor import wait_until

NETNS = Path("/run/netns")


def namespaces() -> set[str]:
    return {path.name for path in NETNS.glob(PREFIX + "*")}


def test_without_the_tools_it_is_refused_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentRefused, match=r"need root|install iproute2"):
        check()


@pytest.mark.root
def test_nothing_is_left_when_it_was_left_in_order() -> None:
    needs_namespaces()
    before = namespaces()
    with Network(["a", "b"]) as net:
        assert len(namespaces() - before) == 3  # the switch has one of its own
        command = net.command("a", ["sleep", "600"])
        sleeper = subprocess.Popen(command)  # a node is left with something still running on it
        assert net.congestion() == "cubic"
    assert sleeper.wait(10) == -signal.SIGKILL
    assert namespaces() == before


@pytest.mark.root
def test_nodes_reach_each_other_and_the_switch_counts_their_bytes() -> None:
    needs_namespaces()
    with Network(["a", "b"]) as net:
        listen = (
            "import socket; s = socket.create_server(('0.0.0.0', 7)); print('up', flush=True); print(s.accept()[0].recv(9))"
        )
        send = f"import socket; socket.create_connection(('{net.address('b')}', 7)).sendall(b'hello')"
        with subprocess.Popen(net.command("b", [sys.executable, "-c", listen]), stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
            before = net.ports()
            subprocess.run(net.command("a", [sys.executable, "-c", send]), check=True, timeout=30)
            assert server.stdout.readline() == "b'hello'\n"
        after = net.ports()
    assert after["b"][0] - before["b"][0] > len("hello")
    assert after["a"][1] - before["a"][1] > len("hello")


@pytest.mark.root
def test_what_a_killed_bench_left_is_removed_by_the_next() -> None:
    needs_namespaces()
    code = (
        "import subprocess, sys\n"
        "from mpca.cli.bench.net.network import Network\n"
        "with Network(['a']) as net:\n"
        "    subprocess.Popen(net.command('a', ['sleep', '600']))\n"
        "    print('made', flush=True)\n"
        "    sys.stdin.read()\n"  # it lives until it is killed, or this test has ended
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "made\n"
        node = f"{PREFIX}{maker.pid}-0-a"
        mine = {node, f"{PREFIX}{maker.pid}-0-switch"}
        assert mine <= namespaces()
        os.kill(maker.pid, signal.SIGKILL)
        maker.wait()
        pids = subprocess.run(["ip", "netns", "pids", node], capture_output=True, text=True).stdout.split()
        assert pids, "the sleeper outlived its maker, or there is nothing to test"
        assert mine <= set(sweep())
    assert not mine & namespaces()
    wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], f"end of {pids}", deadline_s=5)


@pytest.mark.root
def test_the_networks_of_living_benches_are_left_alone() -> None:
    needs_namespaces()
    with Network(["a"]) as net:
        assert net.namespace("a") not in sweep()
        assert net.namespace("a") in namespaces()


@pytest.mark.root
def test_what_another_process_of_the_same_number_left_is_in_nobodys_way() -> None:
    needs_namespaces()
    before, left = namespaces(), f"{PREFIX}{os.getpid()}-0-switch"
    subprocess.run(["ip", "netns", "add", left], check=True)
    try:
        with Network(["a"]) as net, Network(["a"]) as second:
            assert net.namespace("a") != second.namespace("a")
            assert len(namespaces() - before) == 5
            for one in (net, second):
                subprocess.run(one.command("a", ["true"]), check=True)
        assert namespaces() - before == {left}, "it may be of a process in a container"
    finally:
        subprocess.run(["ip", "netns", "delete", left], check=True)
