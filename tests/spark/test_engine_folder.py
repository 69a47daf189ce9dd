"""Runs whose folder takes nothing for a while, or goes away: cycles go on, and the end says what was not saved."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.records import read_records, read_summary
from tests.spark.engine import run_engine
from tests.spark.jobs import quadratic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_costs_no_cycle_and_its_records_are_written_when_there_is_room(
    spark: object, work_dir: Path, small_disk: Path
) -> None:
    ledger, fill = small_disk / "run" / "records.jsonl", small_disk / "fill"
    sizes = []

    def story(run):
        yield lambda: run.reducing(4)
        with pytest.raises(OSError, match="No space left"):
            fill.write_bytes(bytes(4 << 20))
        yield lambda: run.reducing(9)
        sizes.append(ledger.stat().st_size)
        yield lambda: run.reducing(60)
        sizes.append(ledger.stat().st_size)
        fill.unlink()
        run.end()

    sets = ("cluster.agents=1", "backup.interval=1h")
    told = run_engine(spark, work_dir, small_disk / "run", quadratic, story=story, sets=sets, tape=False)
    assert told.ended.exit_code == 0, told.ended.reason
    assert sizes[0] == sizes[1], "the disk was full"
    assert [one.cycle for one in told.cycles] == list(range(told.ended.summary["cycles"]))
    assert told.ended.summary["cycles"] >= 60
    assert (small_disk / "run" / "model.safetensors").is_file()


def test_a_folder_that_is_removed_costs_no_cycle_and_the_end_is_kept_elsewhere(
    spark: object, work_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def story(run):
        yield lambda: run.reducing(4)
        # at once: while it is removed file by file, a backup may be renamed in it
        shutil.rmtree(folder.rename(tmp_path / "removed"), ignore_errors=True)
        yield lambda: run.reducing(10)
        run.end()

    sets = ("cluster.agents=1", "backup.interval=100ms")
    told = run_engine(spark, work_dir, folder, quadratic, story=story, sets=sets, tape=False)
    assert told.ended.exit_code == 1
    assert told.ended.reason.startswith(f"the end is not saved in {folder}: ")
    assert not folder.exists(), "neither records nor backups make it again"
    kept = Path(told.ended.reason.rpartition(" ")[2])
    try:
        assert (kept / "model.safetensors").is_file()
        summary = read_summary(kept / "summary.json")
        cycles = [one.cycle for one in read_records(kept / "records.jsonl").records if one.kind == "cycle"]
        assert len(cycles) >= 6
        assert cycles == list(range(cycles[0], summary.cycles))
    finally:
        shutil.rmtree(kept)
