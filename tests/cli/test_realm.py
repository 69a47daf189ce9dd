"""`mpca dev hadoop up --secure` where Kerberos is not installed. The realm itself: tests/hadoop/test_secure.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mpca.environment import child_environment


def test_missing_programs_are_named_with_the_line_that_installs_them(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    done = subprocess.run(
        [sys.executable, "-m", "mpca.cli", "dev", "hadoop", "up", "--secure", "--dir", str(folder)],
        capture_output=True,
        text=True,
        env=child_environment(PATH=str(tmp_path)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpca: refused: --secure needs ")
    assert line.endswith("kinit, curl: on Debian, apt install krb5-kdc krb5-admin-server krb5-user curl")
    assert not folder.exists()
