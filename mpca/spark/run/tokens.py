"""The end of a run's tokens in a Kerberos realm: who cannot get new ones is told at once, and ends in order before they do.

Spark gets new tokens with the keytab at three quarters of their life, and says that it could not in its log alone, hours later.
So the keytab is tried beside it: as soon as the file is another one, and every ten minutes, or more often when the end is near.
Not more often than that: a realm may lock a principal whose key is wrong again and again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgpack

from mpca.clock import Clock, SystemClock
from mpca.errors import EnvironmentRefused, JvmError, RunFailed
from mpca.spark.jvm.errors import jvm_errors
from mpca.spark.jvm.login import Login, login_of, try_login
from mpca.spark.yarn.submitted import settings_of
from mpca.timeouts import BEFORE_TOKENS_END_S
from mpca.units import format_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TokenLife", "TokenWatch", "watch_tokens"]

_LOOK_S = 5.0
_TRY_EVERY_S = 600.0
#: A try comes after this share of the time that is left, if that is less.
_TRY_SHARE = 1 / 8
#: A run ends when less than this share of its tokens' life is left, if that is less than BEFORE_TOKENS_END_S. Spark asks for
#: new ones much sooner.
_END_SHARE = 1 / 8


class TokenLife:
    """Decides what is said, and when the run ends. Pure; times are seconds since 1970, which tokens know alone.

    Args:
        principal: whose keytab there is; empty: there is none, and no new tokens.
        service: who got the tokens for the user (--proxy-user), beside whom Spark takes no keytab; empty: the user.
    """

    def __init__(self, principal: str, service: str = "") -> None:
        self.good_s: float | None = None  # for which a token is good that nobody renews, once that is known
        self._principal = principal
        self._no_more = (
            f"{service} got them for another user, and so Spark gets no new ones (--proxy-user)"
            if service
            else "without a keytab there are no new ones (spark.kerberos.principal, spark.kerberos.keytab)"
        )
        self._ends: float | None = None  # the run's tokens; None: it has none
        self._life_s = 0.0
        self._refused = ""  # why there is no login
        self._told = False

    def learn(self, good_s: float) -> None:
        """A token that nobody renews is good for so many seconds."""
        self.good_s = good_s

    def hold(self, tokens: list[tuple[float, float]]) -> list[str]:
        """The run holds these tokens now.

        Args:
            tokens: when each was issued, and when it ends at the latest. YARN renews those of a run without keytab until then.

        Returns:
            Lines for the user.
        """
        good_s = float("inf") if self.good_s is None else self.good_s
        lives = [(min(last, issued + good_s), issued) for issued, last in tokens]
        if not lives:
            return []
        self._ends, issued = min(lives)
        self._life_s = self._ends - issued
        if self._principal or self._told:
            return []
        self._told = True
        return [f"this run ends at {_at(self._ends)}, when its tokens for HDFS do: {self._no_more}"]

    def tried(self, refused: str, now: float) -> list[str]:
        """The keytab was tried.

        Args:
            refused: why there was no login; empty: there was one.
            now: the time.

        Returns:
            Lines for the user: one when this is news.
        """
        before, self._refused = self._refused, refused
        if refused and not before and self._ends is not None:
            return [
                f"no new tokens for HDFS: {refused}. The run goes on, and unless this is mended it ends before "
                f"{_at(self._ends)}, in {format_duration(round(max(0.0, self._ends - now)))}, when its tokens do"
            ]
        return [f"{self._principal} logs in again: new tokens come with Spark's next try"] if before and not refused else []

    def try_after(self, now: float) -> float:
        """Seconds until the keytab is tried next."""
        left = _TRY_EVERY_S if self._ends is None else (self._ends - now) * _TRY_SHARE
        return max(_LOOK_S, min(_TRY_EVERY_S, left))

    def over(self, now: float) -> str:
        """Why the run must end now; empty: it need not."""
        least = min(BEFORE_TOKENS_END_S, self._life_s * _END_SHARE)
        if self._principal and not self._refused:
            least /= 2  # the KDC may be back, and Spark's next try comes within two minutes
        if self._ends is None or self._ends - now > least:
            return ""
        why = self._refused or "Spark got none, as its lines say: Failed to update tokens"
        if not self._principal:
            why = self._no_more
        return f"its tokens for HDFS end at {_at(self._ends)}: {why}"


class TokenWatch:
    """A thread that looks at tokens and keytab until it is closed. `lost` is set when the run must end.

    Args:
        life: decides.
        held: the tokens of the JVM, as `TokenLife.hold` takes them.
        keytab: the file; empty: there is none.
        log_in: tries it; raises EnvironmentRefused.
        good_s: asks for how many seconds a token is good; called after a login that was good, until it answers.
        say: is given each line.
        clock: tells when to look.
    """

    def __init__(
        self,
        life: TokenLife,
        held: Callable[[], list[tuple[float, float]]],
        keytab: str,
        log_in: Callable[[], None],
        good_s: Callable[[], float],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.lost: RunFailed | None = None
        self._life, self._held, self._keytab, self._log_in, self._good_s = life, held, keytab, log_in, good_s
        self._say, self._clock = say, clock
        self._epoch = clock.wall() - clock.now()  # as it is now: a clock that is set later ends no run
        self._file: tuple[int, ...] = ()
        self._next_try = clock.now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="mpca-tokens", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more. A login that waits for a KDC is not waited for."""
        self._ended.set()
        self._thread.join(_LOOK_S)

    def _watch(self) -> None:
        while self.lost is None:
            try:
                lines = self._look()
            except JvmError as error:  # it is gone, and the run with it
                if not self._ended.is_set():
                    self._say(f"tokens are not watched any more: {error}")
                return
            for line in lines:
                self._say(line)
            if self._ended.wait(_LOOK_S):
                return

    def _look(self) -> list[str]:
        lines = self._life.hold(self._held())
        file = _file(self._keytab)
        if self._keytab and (file != self._file or self._clock.now() >= self._next_try):
            self._file = file
            lines += self._life.tried(self._try(), self._wall())
            lines += self._life.hold(self._held())
            self._next_try = self._clock.now() + self._life.try_after(self._wall())
        over = self._life.over(self._wall())
        if over:
            self.lost = RunFailed(over)
        return lines

    def _wall(self) -> float:
        return self._epoch + self._clock.now()

    def _try(self) -> str:
        try:
            self._log_in()
        except EnvironmentRefused as error:
            return str(error)
        if self._life.good_s is None:
            try:
                self._life.learn(self._good_s())
            except JvmError as error:  # asked again after the next login
                self._say(f"how long tokens are good is not known yet: {error}")
        return ""


def watch_tokens(session: SparkSession, say: Callable[[str], None]) -> TokenWatch | None:
    """Watch the tokens of a session's JVM; None where there is no Kerberos.

    Args:
        session: of the run.
        say: is given lines for the user.
    """
    context: Any = session.sparkContext
    jvm, java = context._jvm, context._jsc.sc()
    with jvm_errors("asking for the tokens of this JVM"):
        if not jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled():
            return None
        service = _service(jvm)
    login, bridge = login_of(settings_of(session)) or Login("", ""), jvm.org.mpca.bridge.MpcaBridge

    def held() -> list[tuple[float, float]]:
        with jvm_errors("asking for the tokens of this JVM"):
            return [(issued / 1000, last / 1000) for issued, last in msgpack.unpackb(bridge.tokens())]

    def log_in() -> None:
        with jvm_errors("trying the keytab"):
            try_login(jvm, login)

    def good_s() -> float:
        with jvm_errors("asking how long a token is good"):
            return int(bridge.tokensGoodFor(java, login.principal, login.keytab)) / 1000

    return TokenWatch(TokenLife(login.principal, service), held, login.keytab, log_in, good_s, say, SystemClock())


def _service(jvm: Any) -> str:
    """The principal that got this JVM's tokens for its user; empty: the user did. In a container only the tokens know."""
    user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
    for one in user.getCredentials().getAllTokens().toArray():
        if str(one.getKind()) == "HDFS_DELEGATION_TOKEN":
            return str(one.decodeIdentifier().getRealUser())
    return ""


def _file(path: str) -> tuple[int, ...]:
    """What changes when a file is replaced or written."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _at(when: float) -> str:
    return f"{datetime.fromtimestamp(when).astimezone():%Y-%m-%d %H:%M:%S %Z}"
