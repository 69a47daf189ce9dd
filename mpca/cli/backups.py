"""`mpca backups list|verify|show|export`: looks at backups on this machine or on HDFS, without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpca.cli.options import json_option
from mpca.errors import BackupError, ConfigError
from mpca.timeouts import COMMAND_PATIENCE_S
from mpca.units import format_duration, format_size

if TYPE_CHECKING:
    from mpca.storage import Backups

__all__ = ["backups"]

_BROKEN = 1
_where = click.argument("where", metavar="WHERE")


@click.group()
def backups() -> None:
    """Look at backups.

    WHERE is a run's folder, its folder of backups, or one backup: a path, hdfs://... or webhdfs://...
    """


@backups.command("list")
@_where
@json_option
def _list(where: str, as_json: bool) -> None:
    """List the complete backups, newest first."""
    with _opened(where) as (found, only):
        infos = [asdict(one) for one in found.found() if only in (None, one.name)]
    if as_json:
        click.echo(json.dumps({"backups": infos}))
        return
    for one in infos:
        size = format_size(one["size_bytes"])
        click.echo(f"{one['name']}   attempt {one['term']}, cycle {one['cycle']}, {size}   {one['path']}")


@backups.command("verify")
@_where
@json_option
def _verify(where: str, as_json: bool) -> int:
    """Read every byte and compare checksums. The exit code is 1 if a backup is broken, or if there is none."""
    results: list[dict[str, Any]] = []
    with _opened(where) as (found, only):
        for name in [only] if only else found.names():
            try:
                found.read(name)
                results.append({"name": name, "ok": True, "reason": None})
            except BackupError as error:
                if only or name in found.names():  # else the run has just removed it, and has newer ones
                    results.append({"name": name, "ok": False, "reason": str(error)})
    good = bool(results) and all(one["ok"] for one in results)
    if as_json:
        click.echo(json.dumps({"ok": good, "backups": results}))
    for one in () if as_json else results:
        click.echo(f"{one['name']}   {'whole' if one['ok'] else 'broken: ' + one['reason'].removeprefix(one['name'] + ': ')}")
    if not results:
        click.echo(f"no backups: {where}", err=True)
    return 0 if good else _BROKEN


@backups.command("show")
@_where
@json_option
def _show(where: str, as_json: bool) -> None:
    """Show the content of one backup; for a folder, of its newest valid backup."""
    with _opened(where) as (found, only):
        name = only or found.newest().info.name
        manifest = {"name": name, **found.manifest(name)}
    if as_json:
        click.echo(json.dumps(manifest))
        return
    layout, progress = manifest["layout"], manifest["progress"]
    tensors = [row for row in layout["tensors"] if row[2] != "updater"]  # the optimisers' state is in a file of its own
    rows = {
        "backup": name,
        "run": f"{manifest['run']}, attempt {manifest['term']}, cycle {manifest['cycle']}",
        "method": ", ".join(f"{key}={value}" for key, value in manifest["method"].items()),
        "model": f"{len(tensors)} tensors, {layout['parameters']} parameters",
        "shards": f"{len(manifest['exchanges'])}, exchanged {', '.join(map(str, manifest['exchanges']))} times",
        "trained": format_duration(progress.get("trained_s", 0.0)),
        "files": ", ".join(f"{file} {format_size(one['bytes'])}" for file, one in manifest["files"].items()),
        **_agents(manifest.get("agents", {})),
        "software": ", ".join(f"{key} {value}" for key, value in manifest["software"].items()),
    }
    for key, value in rows.items():
        click.echo(f"{key:9} {value}")


def _agents(files: dict[str, dict[str, Any]]) -> dict[str, str]:
    size = format_size(sum(one["bytes"] for one in files.values()))
    return {"agents": f"own states of {len(files)}, {size}"} if files else {}


@backups.command("export")
@_where
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def _export(where: str, file: Path) -> None:
    """Write the joint model of a backup to FILE, as safetensors; for a folder, of its newest valid backup."""
    from mpca.storage import model_file

    with _opened(where) as (found, only):
        state = found.read(only) if only else found.newest().state
    if file.exists():
        raise ConfigError(f"the file exists: {file}; name another")
    try:
        file.write_bytes(model_file(state.layout, state.vector))
    except OSError as error:
        raise ConfigError(f"the file cannot be written: {file}: {error.strerror}") from None
    click.echo(f"{file}: cycle {state.cycle} of run {state.run}, {format_size(file.stat().st_size)}")


@contextmanager
def _opened(where: str) -> Iterator[tuple[Backups, str | None]]:
    """The backups of `where`, and the name of one of them if `where` is that backup; else None."""
    from mpca.api.stores import open_store
    from mpca.storage import Backups, Location

    location, only = Location.parse(where), None
    if location.name.startswith("term-"):
        location, only = location.parent, location.name
    with ExitStack() as stack:
        store = open_store(location, stack, patience_s=COMMAND_PATIENCE_S)
        try:
            if not store.exists(only or ""):
                raise ConfigError(f"no backups here: {location.text if only is None else (location / only).text}")
            folder = "backups" if only is None and store.exists("backups") else ""
            yield Backups(store, folder), only
        except OSError as error:
            if isinstance(error, BackupError):
                raise
            raise BackupError(f"backups cannot be read: {error}") from error
