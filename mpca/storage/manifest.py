"""``manifest.json`` of a backup: how it is made, and the checks that a valid one passes.

Its sha256 finds damage by a disk or a copy. The other checks find faults of a writer, and files that somebody made by hand.
After them a reader may rely on the type and range of every value. Not for the files beside it (`backup.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from mpca import strict_json
from mpca.formats import BACKUP, check_format
from mpca.records.kinds import plain
from mpca.storage.layout import ModelLayout

__all__ = ["KEYS", "MANIFEST", "MODEL", "TRAJECTORY", "UPDATER", "agent_file", "files_of", "make", "parse"]

MODEL, TRAJECTORY, UPDATER = "model.safetensors", "trajectory.safetensors", "updater.safetensors"
MANIFEST = "manifest.json"
#: Fields of `backup.BackupState` that the manifest holds unchanged.
KEYS = ("bounds", "exchanges", "run", "term", "cycle", "method", "data", "seeds", "software", "progress")
_MAPS = ("method", "data", "seeds", "software", "progress")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_AGENT_FILE = re.compile(r"agent-\d{5,}-\d+\.pt")
_MOST = 1 << 62


def files_of(layout: ModelLayout) -> tuple[str, ...]:
    """The files beside the manifest."""
    return (MODEL, TRAJECTORY, *([UPDATER] if layout.updater else []))


def agent_file(agent: int, incarnation: int) -> str:
    """Name of the file with an agent's own state. Its executor writes it, so each process of an agent has one of its own."""
    return f"agent-{agent:05d}-{incarnation}.pt"


def make(values: Mapping[str, Any], layout: ModelLayout, files: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Make the file's bytes.

    Args:
        values: a value for each of `KEYS`, and of "agents", if there are any. A non-finite number (such as the error of a model
            that diverged) becomes null.
        layout: the model's layout.
        files: name -> {"bytes", "sha256"}.

    Raises:
        ValueError: a reader would refuse the manifest.
    """
    manifest = {
        "format": BACKUP,
        **{key: values[key] for key in KEYS},
        "layout_sha256": layout.digest,
        "files": files,
        **({"agents": values["agents"]} if values.get("agents") else {}),
        "layout": layout.to_json(),
    }
    manifest = strict_json.loads(_canonical(plain(manifest)))  # the values that a reader gets, for the same hash
    manifest["sha256"] = hashlib.sha256(_canonical(manifest)).hexdigest()
    data = json.dumps(manifest, indent=1).encode()
    parse(data)
    return data


def parse(data: bytes) -> dict[str, Any]:
    """Parse and check the file; returns its values without its own hash.

    Raises:
        ValueError: the file is damaged, of another format, or has an impossible value; names it.
    """
    try:
        manifest = strict_json.loads(data)
    except ValueError as error:
        raise ValueError(f"{MANIFEST} is not JSON: {error}") from None
    if not isinstance(manifest, dict):
        raise ValueError(f"{MANIFEST} is not a map: {data[:40]!r}")
    claimed = manifest.pop("sha256", None)
    try:
        text = _canonical(manifest)
    except RecursionError:  # JSON that can just be read may be nested too deeply to be written
        raise ValueError(f"{MANIFEST} is not JSON: nested too deeply") from None
    if claimed != hashlib.sha256(text).hexdigest():
        raise ValueError(f"{MANIFEST} does not match its own sha256")
    check_format(MANIFEST, manifest.get("format"), BACKUP)
    try:
        json.dumps(manifest, ensure_ascii=False).encode()  # refuses half a surrogate pair, which nothing can print
        _check(manifest)
    except ValueError as error:
        raise ValueError(f"{MANIFEST}: {error}") from None
    return manifest


def _check(manifest: dict[str, Any]) -> None:
    missing = [key for key in (*KEYS, "files", "layout", "layout_sha256") if key not in manifest]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    for key in _MAPS:
        _require(isinstance(manifest[key], dict), key, manifest[key])
    _require(isinstance(manifest["run"], str), "run", manifest["run"])
    _require(_count(manifest["term"]) and manifest["term"] >= 1, "term", manifest["term"])
    _require(_count(manifest["cycle"]), "cycle", manifest["cycle"])
    for key in ("trained_s", "t"):  # seconds, to which the next attempt adds
        seconds = manifest["progress"].get(key, 0)
        _require(type(seconds) in (int, float) and 0 <= seconds < _MOST, f"progress.{key}", seconds)
    layout = ModelLayout.from_json(manifest["layout"])
    files = manifest["files"]
    _require(isinstance(files, dict) and set(files) == set(files_of(layout)), "files", files)
    for name, one in files.items():
        _require(_is_file(one), f"files.{name}", one)
    agents = manifest.get("agents", {})
    _require(isinstance(agents, dict) and ("agents" not in manifest or bool(agents)), "agents", agents)
    for index, one in agents.items():
        named = _is_file(one) and isinstance(one.get("file"), str) and _AGENT_FILE.fullmatch(one["file"]) is not None
        _require(index.isdecimal() and str(int(index)) == index and named, f"agents.{index}", one)
    if layout.digest != manifest["layout_sha256"]:
        raise ValueError("layout does not match its hash")
    bounds, exchanges = manifest["bounds"], manifest["exchanges"]
    edges = isinstance(bounds, list) and len(bounds) > 1 and all(map(_count, bounds))
    _require(edges and all(a <= b for a, b in pairwise(bounds)), "bounds", bounds)
    _require((bounds[0], bounds[-1]) == (0, layout.total), "bounds", bounds)
    counted = isinstance(exchanges, list) and all(map(_count, exchanges))
    _require(counted and len(exchanges) == len(bounds) - 1, "exchanges", exchanges)


def _is_file(one: Any) -> bool:
    good = isinstance(one, dict) and _count(one.get("bytes")) and isinstance(one.get("sha256"), str)
    return good and _SHA256.fullmatch(one["sha256"]) is not None


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST  # not isinstance, since True is an int


def _require(good: bool, what: str, value: Any) -> None:
    if not good:
        raise ValueError(f"{what} cannot be {json.dumps(value)[:80]}")


def _canonical(manifest: Any) -> bytes:
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
