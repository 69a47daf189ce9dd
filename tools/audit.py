"""Asks PyPI for known vulnerabilities of what a lock file names: ``python tools/audit.py UV LOCK``. For `make audit`.

Of the versions that this Python would get. Ends with 1 when there are some, and with 2 and one sentence when nobody could be
asked: an audit that checked nothing is no clean one. Mirrors of PyPI often have its files, and not what it knows about them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

__all__ = ["main", "verdict"]

_PROGRAM = "pip-audit==2.10.1"
_AWAY = "audit: nothing was checked: {why}; run it where PyPI's own service answers"


def verdict(found: dict[str, Any]) -> tuple[list[str], int]:
    """Lines to print, and the exit code.

    Args:
        found: what pip-audit writes as JSON.
    """
    checked = [one for one in found["dependencies"] if "skip_reason" not in one]
    skipped = len(found["dependencies"]) - len(checked)
    if not checked:
        return [_AWAY.format(why=f"of {skipped} packages the index knows no vulnerabilities at all")], 2
    lines = [
        f"{one['name']} {one['version']}: {bad['id']}, mended in {', '.join(bad['fix_versions']) or 'no release yet'}"
        for one in checked
        for bad in one["vulns"]
    ]
    said = f"{len(checked)} packages checked, {skipped} unknown to PyPI, {len(lines)} vulnerabilities known"
    return [*lines, said], int(bool(lines))


def main(uv: str, lock: str) -> int:
    """Print what is known, and return the exit code."""
    program = [uv, "tool", "run", "--quiet", "--from", _PROGRAM, "pip-audit"]
    options = ["--progress-spinner", "off", "--format", "json", "--disable-pip", "--require-hashes"]
    done = subprocess.run([*program, *options, "-r", lock], capture_output=True, text=True)
    try:
        lines, code = verdict(json.loads(done.stdout))
    except (ValueError, KeyError):
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        lines, code = [_AWAY.format(why=f"pip-audit ended with {done.returncode}: {last[0][:300]}")], 2
    print("\n".join(lines), file=sys.stderr if code == 2 else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
