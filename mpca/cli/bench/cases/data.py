"""`mpca bench data`: how fast JPEGs become batches, beside their decoding alone and beside torchvision's loader.

The data set is ingested at a shorter edge of 256, as the paper trains. ImageFolder reads the originals, the only form that it
can read. Both sides have one decoding process fewer than cores, or as many as asked for. All arms take turns. A data set that
takes long to make can be made before: its originals by `mpca generate`, its shards by `mpca ingest`. Shards at hdfs://... are
read as in a run, by the JVM of an executor; then everything is measured in that executor's agent.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from mpca.cli.bench.load import cpu_idle_share, cpu_ticks
from mpca.cli.bench.run.alone import in_agent
from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.extras import require

__all__ = ["command", "measure"]

_EDGE, _CROP = 256, 224
_CLASSES = 20


@click.command()
@click.option("--images", default=1200, show_default=True, help="How many different images.")
@click.option("--source", type=click.Path(exists=True, path_type=Path), help="Images as a tar of tars; default: generated.")
@click.option("--ingested", metavar="FOLDER", help="Shards of these images, also hdfs://...; default: made here.")
@click.option("--turns", default=15, show_default=True, help="How often each side is measured.")
@click.option("--workers", type=click.IntRange(1), help="Decoding processes; default: one fewer than cores.")
@json_option
def command(images: int, source: Path | None, ingested: str | None, turns: int, workers: int | None, as_json: bool) -> None:
    """Images a second of the stream over decoding alone, and over ImageFolder with a DataLoader."""
    show(measure(images, turns, workers, source, ingested), as_json)


def measure(
    images: int = 1200, turns: int = 15, workers: int | None = None, source: Path | None = None, ingested: str | None = None
) -> dict[str, Any]:
    """The `data` case."""
    require("torchvision", "simplejpeg", "PIL", "sklearn")
    from mpca.data.generate import generate
    from mpca.data.ingest import Options, ingest

    cores = len(os.sched_getaffinity(0))
    workers = workers or max(1, cores - 1)
    with tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder:
        if source is None:
            source = Path(folder) / "source.tar"
            generate(source, images, _CLASSES, 0, cores)
        if ingested is None:
            ingested = f"{folder}/set"
            ingest(source, ingested, Options(shorter_edge=_EDGE), cores)
        _unpack(source, Path(folder) / "originals", images)
        arguments = (ingested, f"{folder}/originals", images, turns, workers)
        measured = in_agent(_measure, *arguments) if ingested.startswith("hdfs://") else _measure(*arguments)
    return {
        "case": "data",
        **measured,
        "images": images,
        "from": ingested.partition("://")[0] if "://" in ingested else "disk",
        "workers": workers,
        "cores": cores,
    }


def _measure(ingested: str, originals: str, images: int, turns: int, workers: int) -> dict[str, Any]:
    from mpca.data.bench import image_folder, in_memory, peak_memory, streaming
    from mpca.data.manifest import store_at
    from mpca.data.stream import Streamed
    from mpca.data.stream_options import StreamOptions
    from mpca.data.stream_reader import SplitData
    from mpca.data.workers_main import Job

    data = SplitData.open(store_at(ingested), "train")
    manifest = data.manifest
    data_bytes = sum(shard.bytes for shard in manifest.splits["train"].shards)
    limit = max(1 << 20, min(64 << 20, data_bytes // 4))
    streamed = Streamed(data, StreamOptions(workers=workers, read_ahead=limit, crop=_CROP, shorter_edge=_EDGE), seed=0)
    memory = peak_memory(streamed, 8, images)
    job = Job(seed=0, shorter_edge=_EDGE, crop=_CROP, centre=False, slots=1, input_bytes=0)
    rates: dict[str, list[float]] = {"stream": [], "memory": [], "imagefolder": []}
    with image_folder(originals, workers, _EDGE, _CROP, manifest.channel_means) as folder:
        folder(64 * workers)
        for turn in range(turns):
            # Decoders of equal code differ by a tenth, by where their memory lies: each turn has others.
            with streaming(streamed) as stream, in_memory(data, job, workers, images) as alone:
                arms = {"stream": stream, "memory": alone, "imagefolder": folder}
                stream(64 * workers)
                alone(64 * workers)
                names = list(arms)[turn % 3 :] + list(arms)[: turn % 3]  # each goes first, second and last equally often
                for name in names:
                    _settle()
                    rates[name].append(arms[name](images if name != "imagefolder" else images // 2))
    return {
        "stream_ratio": _ratio(rates["stream"], rates["memory"]),
        "imagefolder_ratio": _ratio(rates["stream"], rates["imagefolder"]),
        **{f"{name}_images_s": statistics.median(of) for name, of in rates.items()},
        "data_bytes": data_bytes,
        "read_ahead_bytes": limit,
        **memory,
        "peak_over_data": memory["peak_bytes"] / data_bytes,
    }


def _settle() -> None:
    """Wait until a fifth of a core is in use at most, two seconds at most: behind its turn an arm prepares the next one."""
    for _ in range(20):
        start = cpu_ticks()
        time.sleep(0.1)
        if (1 - cpu_idle_share(start, cpu_ticks())) * (os.cpu_count() or 1) <= 0.2:
            return


def _ratio(these: list[float], those: list[float]) -> float:
    """The median over turns: a disturbance of a turn affects both its halves."""
    return statistics.median(one / other for one, other in zip(these, those, strict=True))


def _unpack(source: Path, target: Path, images: int) -> None:
    """So many of the originals, the same number of each class, in one folder a class."""
    from mpca.data.ingest_sources import listing

    found = listing(source)
    with source.open("rb") as file:
        for item in found.items[:: max(1, len(found.items) // images)]:
            path = target / found.classes[item.label] / f"{item.key.rpartition('/')[2]}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            file.seek(item.offset)
            path.write_bytes(file.read(item.length))
