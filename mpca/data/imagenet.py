"""`data.name = "imagenet"` streams any set of labelled images that `mpca ingest` wrote to `data.path`.

`data.name = "vectors"` streams numbers that `mpca.ingest_dataframe` wrote there.

A run is evaluated on "test": images that were ingested for that, as in the paper (6.2). Without such images it is evaluated on
"validation": the images that were withheld from each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpca.checks import refused
from mpca.data.manifest import Manifest, load_index, load_manifest, opened, store_at
from mpca.data.stream_options import StreamOptions
from mpca.errors import ConfigError
from mpca.extras import require
from mpca.units import parse_size

if TYPE_CHECKING:  # checking a configuration must not cost a torch import
    from mpca.data.stream import Streamed

__all__ = ["imagenet", "options", "samples"]


def imagenet(split: str, seed: int, path: str, options: StreamOptions, numbers: bool = False) -> Streamed:
    """Open a split of images, or of numbers.

    Raises:
        ConfigError: `path` holds no data set, or one of the other kind; a class is missing; a label is out of range.
        EnvironmentRefused: nothing is installed that decodes images.
    """
    from mpca.data.stream import Streamed
    from mpca.data.stream_reader import SplitData

    store = store_at(path)
    manifest = load_manifest(store)
    if split == "test" and "test" not in manifest.splits:
        split = "validation"
    _check_kind(path, manifest, numbers)
    return Streamed(SplitData.open(store, split), options, seed)


def _check_kind(path: str, manifest: Manifest, numbers: bool) -> None:
    if (manifest.vectors is not None) != numbers:
        holds, name = ("images", "imagenet") if numbers else ("numbers", "vectors")
        raise refused("data.name", "vectors" if numbers else "imagenet", f"{path} holds {holds}: set it to {name!r}")
    if not numbers:
        require("simplejpeg", "PIL")


def samples(path: str, numbers: bool = False) -> dict[str, int]:
    """Count the records of each split, after the checks that `imagenet` makes.

    Raises:
        ConfigError: as `imagenet`; or there is no split to evaluate a run on.
    """
    with opened(path) as store:
        manifest = load_manifest(store)
        _check_kind(path, manifest, numbers)
        records = {split: len(load_index(store, manifest, split)) for split in manifest.splits}
    if len(records) == 1:
        raise ConfigError(f"{path} has nothing to evaluate on: ingest it with --withheld, as many images of each class")
    return {"test": records.get("validation", 0), **records}


def options(
    workers: int, read_ahead: str, cache: str, crop: int, shorter_edge: int, test_view: str, decoder: str = "cpu"
) -> StreamOptions:
    """Convert keys of [data] to numbers; sizes are texts with a unit.

    Raises:
        ConfigError: a value is not allowed.
    """
    sizes = {key: _size(key, text) for key, text in (("read_ahead", read_ahead), ("cache", cache))}
    return StreamOptions(workers=workers, decoder=decoder, crop=crop, shorter_edge=shorter_edge, test_view=test_view, **sizes)


def _size(key: str, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise refused(f"data.{key}", text, str(error)) from None
