"""A plan made from a survey of a table's rows, and shards made from the rows; without Spark.

`mpca.spark.data.dataframes` brings this to the cluster. The driver makes the plan once. An executor builds a shard from its
rows, in the order of their digests; a shard that has a note already is skipped. The files are those that `mpca ingest` writes.
Not for turning rows into records: `rows.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from types import TracebackType

from mpca.data.ingest import Options, check_withheld
from mpca.data.ingest_worker import Note, ShardBuilder, read_note
from mpca.data.manifest import VectorForm, opened, store_at
from mpca.data.rows import FILES, NUMBERS, Form, Label, Packed, Survey
from mpca.data.shards import shard_name
from mpca.errors import BadImage, ConfigError, MpcaError
from mpca.storage import Store

__all__ = ["DIGEST", "Files", "Plan", "make_plan", "notes_of", "write_shard"]

#: In a target: stands for the beginning of the plan's digest.
DIGEST = "{digest}"
_NAME_LETTERS = 16
_NAMED = 3
_HEADERS = 2048  # bytes of a record beside its data: headers, padding, the label's file
_CHANCE_BYTES = 8  # bytes of a digest that choose the shard; the other bytes choose the split


@dataclass(frozen=True, slots=True)
class Plan:
    """The shards of an ingest, and the rule that gives each record its shard."""

    target: str
    classes: list[str]
    numbers: dict[Label, int]  # label in the table -> number of its class
    withheld: dict[Label, bytes]  # by class, the largest digest that is withheld
    shards: dict[str, int]  # number of shards of each split
    shorter_edge: int
    vectors: VectorForm | None
    files: bool
    digest: str
    records: int

    def shard_names(self) -> list[str]:
        """Names of all shards; `shard_of` gives an index into this list."""
        return [shard_name(split, number) for split, count in self.shards.items() for number in range(count)]

    def shard_of(self, one: Packed) -> int:
        """The index of a record's shard in `shard_names`."""
        withheld = one.withheld or (one.label in self.withheld and one.digest <= self.withheld[one.label])
        split = "validation" if withheld else "train"
        before = self.shards["train"] if withheld else 0
        chance = int.from_bytes(one.digest[-_CHANCE_BYTES:], "big")
        return before + (chance * self.shards[split] >> 8 * _CHANCE_BYTES)


def make_plan(form: Form, told: Survey, target: str, options: Options, classes: int | None = None) -> Plan:
    """Make the plan from a survey of the rows.

    Raises:
        ConfigError: some rows cannot be records; names the column, their number, where the first one is, and the remedy.
    """
    _check_refused(told)
    if not told.labels:
        raise ConfigError(f"the DataFrame has no rows to train on: columns {form.features!r} and {form.label!r}")
    vectors = _form(form, told) if form.kind in NUMBERS else None
    names = _classes(form, told, classes)
    numbers = {label: number for number, label in enumerate(names)}
    counts = {numbers[one]: seen.count for one, seen in told.labels.items()}
    check_withheld([str(one) for one in names], counts, options.withheld)
    aside = _aside(form, told)
    withheld = {}
    if options.withheld:
        withheld = {label: sorted(seen.smallest)[options.withheld - 1] for label, seen in told.labels.items()}
    share = (options.withheld * len(names) or aside) / told.records
    total = told.data_bytes + _HEADERS * told.records
    # Leave a tenth of room, since records fall into shards by chance.
    parts = {"train": 1 - share, **({"validation": share} if share else {})}
    shards = {split: max(1, -(-int(1.1 * total * part) // options.shard_bytes)) for split, part in parts.items()}
    text = f"{options!r} {form.kind} {vectors} {names!r} {told.records} {told.digests} {shards}"
    if isinstance(form.validation, float):  # a column for validation is in the rows' digests
        text += f" {form.validation!r}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Plan(
        target.replace(DIGEST, digest[:_NAME_LETTERS]),
        [str(one) for one in names],
        numbers,
        withheld,
        shards,
        options.shorter_edge,
        vectors,
        form.kind in FILES,
        digest,
        told.records,
    )


def write_shard(plan: Plan, index: int, records: Iterable[Packed]) -> int:
    """Build one shard, and return the number of its rows.

    Args:
        index: of the shard in `Plan.shard_names`.
        records: all records of the shard, in their order.

    Raises:
        MpcaError: the storage failed.
    """
    shard = plan.shard_names()[index]
    builder, count = ShardBuilder(plan.shorter_edge), 0
    key, again = "", 1
    with opened(plan.target) as store, Files() as files:
        if read_note(store, shard) is not None:
            return sum(1 for _ in records)
        for one in records:
            count += 1
            same = one.digest.hex()
            key, again = same, again + 1 if same == key else 1
            name = key if again == 1 else f"{key}-{again}"
            try:
                if one.reason:
                    raise BadImage(one.reason)
                if plan.vectors is not None:
                    builder.numbers(name, one.data, plan.numbers[one.label])
                else:
                    data = files.read(one.data.decode()) if plan.files else one.data
                    builder.image(name, data, plan.numbers[one.label])
            except BadImage as error:
                builder.bad(one.row, str(error))
            except OSError as error:  # from a file that a row names
                builder.bad(one.row, error.strerror or str(error))
        try:
            builder.put(store, shard)
        except OSError as error:
            raise MpcaError(f"{store.describe(shard)} cannot be written: {error}") from None
    return count


def notes_of(plan: Plan, store: Store) -> dict[str, list[Note]]:
    """The notes of all shards by split, in the order of the shards.

    Raises:
        MpcaError: a note is missing.
    """
    notes: dict[str, list[Note]] = {}
    for split, count in plan.shards.items():
        notes[split] = []
        for number in range(count):
            note = read_note(store, shard_name(split, number))
            if note is None:
                raise MpcaError(
                    f"{store.describe(shard_name(split, number))} is not seen from the driver: executors write where they are; "
                    "name a target that all of them share, such as hdfs://..."
                )
            notes[split].append(note)
    return notes


class Files:
    """Reads files that rows name: paths that every executor can read, or addresses of HDFS."""

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for store in self._stores.values():
            getattr(store, "close", lambda: None)()

    def read(self, name: str) -> bytes:
        """Read a file; raises OSError when it cannot be read."""
        store, file = self._at(name)
        return store.read(file)

    def size(self, name: str) -> int:
        """Bytes of a file; 0 when it cannot be read. `read` reports that file later."""
        store, file = self._at(name)
        try:
            return store.size(file)
        except OSError:
            return 0

    def _at(self, name: str) -> tuple[Store, str]:
        # Spark writes a local path as file:/path.
        folder, _, file = (name[5:] if name.startswith("file:/") and not name.startswith("file://") else name).rpartition("/")
        if folder not in self._stores:
            self._stores[folder] = store_at(folder or "/")
        return self._stores[folder], file


# ---- what is refused -----------------------------------------------------------------------------------------------------


def _check_refused(told: Survey) -> None:
    if not told.refused:
        return
    worst = sorted(told.refused.items(), key=lambda one: -one[1].count)[:_NAMED]
    raise ConfigError("; ".join(f"{rule.fact}: {_rows(seen.count)}, first {seen.first}; {rule.remedy}" for rule, seen in worst))


def _aside(form: Form, told: Survey) -> int:
    """Number of rows that `form.validation` puts aside."""
    if form.validation is None:
        return 0
    by = f"column {form.validation!r}" if isinstance(form.validation, str) else f"validation={form.validation:g}"
    for label, seen in told.labels.items():
        if seen.withheld == seen.count:
            raise ConfigError(
                f"nothing is left to train on: class {label} has {_rows(seen.count)}, and {by} puts all of them aside; "
                "put fewer aside, or leave the class out"
            )
    aside = sum(seen.withheld for seen in told.labels.values())
    if not aside:
        raise ConfigError(
            f"nothing is put aside to evaluate on: {by}, {_rows(told.records)}; put more aside, or none by intent"
        )
    return aside


def _form(form: Form, told: Survey) -> VectorForm:
    common = max(told.forms, key=lambda one: (told.forms[one].count, one))
    others = {one: seen for one, seen in told.forms.items() if one != common}
    if others:
        other, seen = max(others.items(), key=lambda one: one[1].count)
        raise ConfigError(
            f"column {form.features!r} is ragged: {_rows(sum(one.count for one in others.values()))} of another shape than "
            f"{common[1]}, such as {other[1]} in {seen.first}; cut or fill them, or leave them out"
        )
    return VectorForm(common[0], list(common[1]))


def _classes(form: Form, told: Survey, wanted: int | None) -> list[Label]:
    """The table's labels, in the order of their class numbers."""
    found = list(told.labels)
    if isinstance(found[0], str):
        if wanted is not None and len(found) != wanted:
            raise ConfigError(f"column {form.label!r} has {len(found)} different texts, classes={wanted}")
        return sorted(found)
    largest = max(int(one) for one in found)
    classes = wanted if wanted is not None else largest + 1
    outside = {one: seen for one, seen in told.labels.items() if int(one) >= classes}
    if outside:
        rows = _rows(sum(seen.count for seen in outside.values()))
        raise ConfigError(
            f"label out of range: column {form.label!r}: {rows} of {classes} or above, such as {largest} in "
            f"{told.labels[largest].first}; classes={classes}, so labels lie in 0 .. {classes - 1}"
        )
    missing = list(islice((one for one in range(classes) if one not in told.labels), 10))
    if missing:
        raise ConfigError(
            f"classes without a row: column {form.label!r} has {len(found)} of {classes} labels, none is {missing}; labels "
            f"count classes from 0; if they are names, give them as texts: df.withColumn({form.label!r}, "
            f"df[{form.label!r}].cast('string'))"
        )
    return list(range(classes))


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"
