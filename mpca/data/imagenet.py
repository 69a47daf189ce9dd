"""`data.name = "imagenet"`: what `mpca ingest` wrote to `data.path`, streamed. Any set of labelled images can be that.

"test" is the validation split, which ingest withheld of each class: what the paper calls cross validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpca.checks import refused
from mpca.data.manifest import load_index, load_manifest, store_at
from mpca.data.stream_options import StreamOptions
from mpca.errors import ConfigError
from mpca.units import parse_size

if TYPE_CHECKING:  # checking a configuration must not cost a torch import
    from mpca.data.stream import Streamed

__all__ = ["imagenet", "options", "samples"]


def imagenet(split: str, seed: int, path: str, options: StreamOptions) -> Streamed:
    """A split, opened.

    Raises:
        ConfigError: no data set in `path`; a class is missing, a label out of range.
    """
    from mpca.data.stream import Streamed
    from mpca.data.stream_reader import SplitData

    return Streamed(SplitData.open(store_at(path), "validation" if split == "test" else split), options, seed)


def samples(path: str) -> dict[str, int]:
    """Records by split, all of it looked at as `imagenet` would.

    Raises:
        ConfigError: as there; or nothing was withheld that a run could be evaluated on.
    """
    store = store_at(path)
    manifest = load_manifest(store)
    if "validation" not in manifest.splits:
        raise ConfigError(f"{path} has nothing to evaluate on: ingest it with --withheld, as many images of each class")
    records = {split: len(load_index(store, manifest, split)) for split in manifest.splits}
    return {**records, "test": records["validation"]}


def options(workers: int, read_ahead: str, cache: str, crop: int, shorter_edge: int, test_view: str) -> StreamOptions:
    """The keys of [data] as numbers; sizes are texts with their unit.

    Raises:
        ConfigError: a value that cannot be.
    """
    sizes = {key: _size(key, text) for key, text in (("read_ahead", read_ahead), ("cache", cache))}
    return StreamOptions(workers=workers, crop=crop, shorter_edge=shorter_edge, test_view=test_view, **sizes)


def _size(key: str, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise refused(f"data.{key}", text, str(error)) from None
