"""What `mpca doctor` makes of what it is told; asking is for tests/hadoop."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpca.spark.jvm.jar import LINES
from mpca.spark.jvm.login import Login
from mpca.spark.yarn.examine import (
    judge_clock,
    judge_expiry,
    judge_java,
    judge_keytab,
    judge_realm,
    judge_space,
    judge_ticket,
    judge_tokens,
)


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("1.8.0_402", ["ok", "change"]),
        ("11.0.2", ["ok", "change"]),
        ("17.0.15", ["ok", "ok"]),
        ("17", ["ok", "ok"]),
        ("21.0.1", ["change", "ok"]),
    ],
)
def test_java(version: str, levels: list[str]) -> None:
    assert [judge_java(version, line).level for line in LINES] == levels


@pytest.mark.parametrize(("seconds", "level"), [(0.2, "ok"), (-59, "ok"), (61, "change"), (-299, "change"), (301, "stop")])
def test_clocks(seconds: float, level: str) -> None:
    found = judge_clock(seconds)
    assert found.level == level
    assert ("ahead" if seconds > 0 else "behind") in found.text


def test_node_expiry_against_the_time_outs_that_we_set() -> None:
    assert judge_expiry("600000").level == "ok"  # YARN's default, noticed after up to 800 s
    late = judge_expiry("1200000")
    assert late.level == "change"
    assert "spark.rpc.askTimeout" in late.text
    assert "1600 s" in late.text


def test_tokens_of_a_driver_that_is_started_again() -> None:
    assert judge_tokens("true").level == "ok"
    found = judge_tokens("false")
    assert found.level == "change"
    assert "set yarn.resourcemanager.proxy-user-privileges.enabled=true, and hadoop.proxyuser.yarn.hosts" in found.text


def test_space() -> None:
    assert judge_space(11 << 30).level == "ok"
    assert judge_space(1 << 30).level == "change"


SHOWN = """\
Ticket cache: {cache}
Default principal: ann@A.COM

Valid starting     Expires            Service principal
11/25/26 15:15:29  11/26/26 01:15:29  krbtgt/A.COM@A.COM
"""


@pytest.mark.parametrize(
    ("shown", "good", "said"),
    [
        ("", False, "no Kerberos ticket: run kinit, or name --principal and --keytab"),
        (SHOWN.format(cache="FILE:/tmp/krb5cc_1"), False, "the ticket of ann@A.COM has expired: run kinit"),
        (SHOWN.format(cache="KCM:0"), True, "the ticket of ann@A.COM is in KCM:0, where Java finds none: it reads files alone"),
    ],
)
def test_why_there_is_no_ticket(shown: str, good: bool, said: str) -> None:
    found = judge_ticket(shown, good)
    assert (found.what, found.level) == ("login", "stop")
    assert said in found.text


def test_a_ticket_of_another_realm() -> None:
    assert judge_realm("ann@A.COM", "A.COM", "ann by Kerberos").text == "ann by Kerberos"
    assert judge_realm("ann@A.COM", "", "ann").level == "ok", "the cluster's realm is not known"
    other = judge_realm("ann@B.COM", "A.COM", "ann by Kerberos")
    assert other.level == "change"
    assert "ann@B.COM is of another realm than the cluster, A.COM" in other.text


def test_a_keytab_that_others_read_or_that_is_not_there(tmp_path: Path) -> None:
    login = Login("ann@A.COM", str(tmp_path / "k"))
    assert judge_keytab(login).level == "stop"
    (tmp_path / "k").write_bytes(b"\5\2")
    for mode, level in ((0o600, "ok"), (0o640, "change"), (0o644, "change")):
        (tmp_path / "k").chmod(mode)
        assert judge_keytab(login).level == level
