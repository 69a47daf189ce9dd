"""Who submits: what Spark's settings name, and what is said of a keytab. Logging in is for tests/hadoop/test_secure.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.login import Login, login_of


def test_settings_name_both_or_neither() -> None:
    both = {"spark.kerberos.principal": "ann@A", "spark.kerberos.keytab": "/k"}
    assert login_of(both) == Login("ann@A", "/k")
    assert login_of({"spark.yarn.principal": "ann@A", "spark.yarn.keytab": "/k"}) == Login("ann@A", "/k")
    assert login_of({"spark.ui.enabled": "false"}) is None
    for lacks in both:
        with pytest.raises(EnvironmentRefused, match=f"{re.escape(lacks)} is not: Spark needs both"):
            login_of({key: value for key, value in both.items() if key != lacks})


def test_a_keytab_that_is_none_is_named(tmp_path: Path) -> None:
    nothing, text = tmp_path / "nothing", tmp_path / "text"
    text.write_text("hunter2")
    for path, said in ((nothing, "No such file"), (tmp_path, "Is a directory"), (text, "not a keytab; `klist -k ")):
        with pytest.raises(EnvironmentRefused, match=rf"^spark\.kerberos\.keytab = {path}: {said}"):
            Login("ann@A", str(path)).check()


@pytest.mark.parametrize(
    ("mode", "who"),
    [(0o600, ""), (0o400, ""), (0o640, "its group (0640)"), (0o644, "everybody (0644)"), (0o604, "everybody (0604)")],
)
def test_who_else_may_read_a_keytab(tmp_path: Path, mode: int, who: str) -> None:
    keytab = tmp_path / "k"
    keytab.write_bytes(b"\5\2")
    keytab.chmod(mode)
    login = Login("ann@A", str(keytab))
    login.check()
    expected = f"the keytab can be read by {who}, and whoever reads it is ann@A: chmod 600 {keytab}" if who else ""
    assert login.readers() == expected
