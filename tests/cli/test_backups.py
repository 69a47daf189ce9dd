"""`mpca backups` on local folders: what is there, what is broken and how the exit code says it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from mpca.storage import Backups, BackupState, LocalStore, ModelLayout
from tests.cli.test_main import run

VECTOR = np.arange(6, dtype=np.float32)


def write(folder: Path, *cycles: int) -> None:
    """Backups of a model of six parameters, as of those cycles."""
    layout = ModelLayout.of([["w", [2, 3], "parameter", 0]], parameters=6)
    for cycle in cycles:
        Backups(LocalStore(folder), "backups", keep=9).write(
            BackupState(layout, VECTOR + cycle, VECTOR, [0, 6], [cycle], "digits", 1, cycle, {"name": "mpca"})
        )


def test_list_names_them_newest_first_from_the_run_folder_and_from_their_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 3, 12)
    code, out, _ = run(capfd, "backups", "list", str(tmp_path))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["term-0001-cycle-00000012", "term-0001-cycle-00000003"]
    code, out, _ = run(capfd, "backups", "list", f"file://{tmp_path}/backups", "--json")
    assert [(one["cycle"], one["path"]) for one in json.loads(out)["backups"]] == [
        (12, f"{tmp_path}/backups/term-0001-cycle-00000012"),
        (3, f"{tmp_path}/backups/term-0001-cycle-00000003"),
    ]


def test_verify_says_which_is_broken_and_exits_with_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 3, 12)
    assert run(capfd, "backups", "verify", str(tmp_path))[0] == 0
    model = tmp_path / "backups" / "term-0001-cycle-00000012" / "model.safetensors"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    code, out, _ = run(capfd, "backups", "verify", str(tmp_path))
    assert code == 1
    assert out.splitlines() == [
        "term-0001-cycle-00000012   broken: model.safetensors does not match its sha256",
        "term-0001-cycle-00000003   whole",
    ]
    code, out, _ = run(capfd, "backups", "verify", str(model.parent), "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
    assert run(capfd, "backups", "verify", str(tmp_path / "backups" / "term-0001-cycle-00000003"))[0] == 0


def test_show_counts_the_models_tensors_and_names_the_file_with_optimisers_state(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    layout = ModelLayout.of([["w", [6], "parameter", 0], ["w/momentum_buffer", [6], "updater", 6]], parameters=6)
    both = np.concatenate([VECTOR, VECTOR])
    Backups(LocalStore(tmp_path), "backups").write(
        BackupState(layout, both, VECTOR, [0, 12], [3], "digits", 1, 3, {"name": "dl4j-averaging"})
    )
    _, out, _ = run(capfd, "backups", "show", str(tmp_path))
    assert "model     1 tensors, 6 parameters" in out.splitlines()
    assert "updater.safetensors" in out


def test_show_and_export_take_the_newest_valid_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 3, 12)
    (tmp_path / "backups" / "term-0001-cycle-00000012" / "manifest.json").write_bytes(b"")
    code, out, _ = run(capfd, "backups", "show", str(tmp_path))
    assert code == 0
    assert "run       digits, attempt 1, cycle 3" in out.splitlines()
    code, out, _ = run(capfd, "backups", "export", str(tmp_path), str(tmp_path / "model.safetensors"))
    assert code == 0
    held = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert held["w"].tolist() == [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    code, _, err = run(capfd, "backups", "export", str(tmp_path), str(tmp_path / "model.safetensors"))
    assert (code, "the file exists" in err[-1]) == (2, True)


def test_what_is_not_there_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "verify", "show"):
        code, out, err = run(capfd, "backups", command, str(tmp_path / "nowhere"))
        assert (code, out) == (2, "")
        assert err[-1] == f"mpca: refused: no backups here: {tmp_path}/nowhere"
    code, _, err = run(capfd, "backups", "list", "hdfs://ann:secret@nn1/x")
    assert code == 2
    assert "password" in err[-1]
    assert "secret" not in err[-1]
    code, _, err = run(capfd, "backups", "verify", str(tmp_path))
    assert (code, err[-1]) == (1, f"no backups: {tmp_path}")
