"""What is decided of tokens and keytabs, over tokens that are written down; on a realm: tests/hadoop/full_tokens.py."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from mpca.clock import Clock, ManualClock, SystemClock
from mpca.errors import EnvironmentRefused, JvmError
from mpca.spark.run.tokens import TokenLife, TokenWatch

DAY = 86400.0


def life(principal: str = "ann@A", good_s: float | None = DAY) -> TokenLife:
    made = TokenLife(principal)
    if good_s is not None:
        made.learn(good_s)
    return made


def test_a_keytab_that_logs_in_no_more_is_told_once_with_the_end_and_again_when_it_does() -> None:
    one = life()
    assert one.hold([(0.0, 7 * DAY)]) == []
    assert one.tried("", 10.0) == []
    (line,) = one.tried("keytab = /k: No such file", DAY - 3600)
    assert line.startswith("no new tokens for HDFS: keytab = /k: No such file. The run goes on")
    assert "it ends before 1970-01-02 " in line
    assert "in 1h" in line
    assert one.tried("keytab = /k: No such file", DAY - 3000) == []
    assert one.tried("", DAY - 2000) == ["ann@A logs in again: new tokens come with Spark's next try"]
    assert one.tried("", DAY - 1000) == []


@pytest.mark.parametrize(("good_s", "last"), [(DAY, DAY - 300), (120.0, 105.0), (None, 7 * DAY - 300)])
def test_a_run_ends_before_its_tokens_do_and_no_sooner(good_s: float | None, last: float) -> None:
    one = life(good_s=good_s)
    one.hold([(0.0, 7 * DAY)])
    one.tried("no login as ann@A: the key is another", 1.0)
    assert one.over(last - 1) == ""
    why = one.over(last + 1)
    assert why.startswith("its tokens for HDFS end at 1970-01-0")
    assert why.endswith(": no login as ann@A: the key is another")


def test_a_keytab_that_logs_in_again_leaves_spark_time_for_its_next_try() -> None:
    one = life(good_s=1800.0)
    one.hold([(0.0, 7 * DAY)])
    one.tried("no login as ann@A: no KDC answers", 1000.0)
    assert one.over(1800 - 224)
    one.tried("", 1575.0)
    assert one.over(1800 - 113) == ""
    assert "Failed to update tokens" in one.over(1800 - 112)
    one.tried("no login as ann@A: no KDC answers", 1580.0)
    assert one.over(1800 - 224)


def test_new_tokens_move_the_end_and_spark_that_gets_none_is_named() -> None:
    one = life()
    one.hold([(0.0, 7 * DAY)])
    assert "Failed to update tokens" in one.over(DAY)
    one.hold([(0.75 * DAY, 7.75 * DAY)])
    assert one.over(DAY) == ""
    one.hold([(0.75 * DAY, 7.75 * DAY), (0.0, 7 * DAY)])
    assert one.over(DAY), "the token of another NameNode ends"


def test_without_a_keytab_the_end_is_said_at_the_start_once() -> None:
    one = TokenLife("")
    (line,) = one.hold([(0.0, 7 * DAY)])
    assert line.startswith("this run ends at 1970-01-0")
    assert "spark.kerberos.keytab" in line
    assert one.hold([(0.0, 7 * DAY)]) == []
    assert one.over(6 * DAY) == "", "YARN renews them every day"
    assert "without a keytab there are no new ones" in one.over(7 * DAY - 299)


def test_a_service_that_submits_for_another_user_is_not_told_to_name_a_keytab() -> None:
    one = TokenLife("", "livy@A")
    (line,) = one.hold([(0.0, 7 * DAY)])
    assert "livy@A got them for another user" in line
    assert "keytab" not in line
    assert "livy@A got them for another user" in one.over(7 * DAY - 299)


def test_a_run_without_tokens_never_ends_for_them() -> None:
    one = life()
    assert one.hold([]) == []
    assert one.tried("no login", 1e9) == []
    assert one.over(1e9) == ""
    assert one.try_after(1e9) == 600.0


def test_a_keytab_is_tried_more_often_near_the_end_and_never_in_a_storm() -> None:
    one = life()
    one.hold([(0.0, 7 * DAY)])
    assert [one.try_after(DAY - left) for left in (DAY, 4800.0, 800.0, 8.0, -100.0)] == [600.0, 600.0, 100.0, 5.0, 5.0]


class Realm:
    """Stands for the JVM: what it holds, and whether it lets a keytab in."""

    def __init__(self, keytab: Path, tokens: list[tuple[float, float]]) -> None:
        self.keytab, self.tokens, self.tries, self.looks = keytab, tokens, 0, 0
        self.good: list[float | None] = []  # what `good_s` answers; None: an error
        self.said: list[str] = []

    def held(self) -> list[tuple[float, float]]:
        self.looks += 1
        if not self.tokens:
            raise JvmError("the driver's JVM is gone")
        return self.tokens

    def log_in(self) -> None:
        self.tries += 1
        if not self.keytab.exists():
            raise EnvironmentRefused(f"no keytab {self.keytab}")

    def good_s(self) -> float:
        found = self.good.pop(0)
        if found is None:
            raise JvmError("no NameNode")
        return found

    def watch(self, clock: Clock | None = None) -> TokenWatch:
        clock = clock or SystemClock()
        return TokenWatch(TokenLife("ann@A"), self.held, str(self.keytab), self.log_in, self.good_s, self.said.append, clock)

    def until(self, there: str) -> None:
        deadline = time.monotonic() + 30
        while not any(there in one for one in self.said):
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)


def watching() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "mpca-tokens"]


def test_a_keytab_that_is_removed_is_told_at_the_next_look_and_the_run_ends(tmp_path: Path) -> None:
    realm = Realm(tmp_path / "k", [(time.time(), time.time() + 7 * DAY)])
    realm.keytab.write_bytes(b"\5\2")
    realm.good = [None, DAY]
    watch = realm.watch()
    try:
        realm.until("how long tokens are good is not known yet: no NameNode")
        realm.keytab.touch()
        deadline = time.monotonic() + 30
        while realm.tries < 2 or realm.good:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        realm.keytab.unlink()
        realm.until(f"no new tokens for HDFS: no keytab {realm.keytab}. The run goes on")
        assert realm.tries == 3, "only when the file is another one"
        assert watch.lost is None
        realm.tokens = [(time.time() - DAY, time.time() + DAY)]
        deadline = time.monotonic() + 30
        while watch.lost is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert f"no keytab {realm.keytab}" in str(watch.lost)
    finally:
        watch.close()
    assert watching() == []


def test_a_clock_that_is_set_forward_by_a_month_ends_no_run(tmp_path: Path) -> None:
    clock = ManualClock()
    realm = Realm(tmp_path / "k", [(clock.wall(), clock.wall() + 7 * DAY)])
    realm.keytab.write_bytes(b"\5\2")
    realm.good = [DAY]
    watch = realm.watch(clock)
    try:
        clock.set_wall_forward(30 * DAY)
        before, deadline = realm.looks, time.monotonic() + 30
        while realm.looks < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert watch.lost is None
    finally:
        watch.close()


def test_a_jvm_that_is_gone_ends_the_watch_alone(tmp_path: Path) -> None:
    realm = Realm(tmp_path / "k", [])
    watch = realm.watch()
    realm.until("tokens are not watched any more: the driver's JVM is gone")
    watch.close()
    assert (watch.lost, watching()) == (None, [])
