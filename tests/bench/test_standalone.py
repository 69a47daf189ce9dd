"""What a bench that failed shows of its executors' logs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from mpca.cli.bench.net.standalone import Standalone


def test_a_failed_bench_shows_the_newest_warnings_of_executors_and_their_last_lines(tmp_path: Path) -> None:
    def line(number: int) -> str:
        level = "WARN" if number < 12 else "INFO"
        return f"26/11/28 09:19:{number:02} {level} transfer: {number}"

    log = tmp_path / "w3-work" / "app-1" / "0" / "stderr"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(map(line, range(30))))
    daemons = Standalone(SimpleNamespace(address=lambda name: "10.77.0.1"), "master", ["w3"], tmp_path, "1g")
    shown = daemons.executor_log().splitlines()
    assert shown == [f"{log}: {line(number)}" for number in [*range(7, 12), *range(25, 30)]]
    log.write_text(f"{line(3)}\n")
    assert daemons.executor_log() == f"{log}: {line(3)}"
