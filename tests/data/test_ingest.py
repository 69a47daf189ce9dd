"""From images in their three forms to shards: byte for byte, each image once, bad ones named, killed and gone on with."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from mpca.data import check, load
from mpca.data.decode import decode
from mpca.data.generate import generate, image
from mpca.data.ingest import Options, ingest
from mpca.data.ingest_sources import listing
from mpca.data.manifest import load_index, load_manifest, store_at
from mpca.errors import ConfigError
from tests.data.pictures import folders, jpeg
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long

SMALL = Options(withheld=2, shard_bytes=60_000)


def records(target: Path) -> dict[str, tuple[str, int, bytes]]:
    """Every record by its key, read by the index: split, label, bytes."""
    found = {}
    store = store_at(str(target))
    manifest = load_manifest(store)
    for split, of in manifest.splits.items():
        index = load_index(store, manifest, split)
        for shard, info in enumerate(of.shards):
            for number in range(index.starts[shard], index.starts[shard + 1]):
                entry = index.entry(number)
                assert entry.key not in found
                found[entry.key] = split, entry.label, store.read_range(info.name, entry.offset, entry.length)
    return found


def digest(target: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in target.iterdir()}


def tar_of_tars(path: Path, classes: dict[str, dict[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as outer:
        for name, images in classes.items():
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as one:
                for file, data in images.items():
                    info = tarfile.TarInfo(file)
                    info.size = len(data)
                    one.addfile(info, io.BytesIO(data))
            info = tarfile.TarInfo(f"{name}.tar")
            info.size = len(inner.getvalue())
            outer.addfile(info, io.BytesIO(inner.getvalue()))
    return path


def test_every_image_is_in_once_byte_for_byte_and_as_many_of_each_class_withheld(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=3, each=10)
    done = ingest(source, str(tmp_path / "set"), SMALL, processes=2)
    found = records(tmp_path / "set")
    expected = {str(path.relative_to(source).with_suffix("")): path.read_bytes() for path in source.rglob("*.jpg")}
    assert {key: data for key, (_, _, data) in found.items()} == expected
    assert all(key.startswith(done.manifest.classes[label]) for key, (_, label, _) in found.items())
    counts = Counter((split, label) for split, label, _ in found.values())
    assert counts == Counter(
        {**{("train", label): 8 for label in range(3)}, **{("validation", label): 2 for label in range(3)}}
    )
    assert done.manifest.splits["train"].by_class == [8, 8, 8]
    assert len(done.manifest.splits["train"].shards) > 2
    train = [decode(data, 256) for split, _, data in found.values() if split == "train"]
    means = np.concatenate([image.reshape(-1, 3) for image in train]).mean(axis=0)
    assert done.manifest.channel_means == pytest.approx(means.tolist(), abs=0.01)


def test_a_shard_is_a_tar_that_others_read_in_another_order_than_it_came(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=20)
    ingest(source, str(tmp_path / "set"), Options(), processes=1)
    with tarfile.open(tmp_path / "set" / "train-000000.tar") as shard:
        names = shard.getnames()
        pairs = list(zip(names[::2], names[1::2], strict=True))
        assert all(image.removesuffix(".jpg") == label.removesuffix(".cls") for image, label in pairs)
        labels = [int(shard.extractfile(label).read()) for _, label in pairs]  # type: ignore[union-attr]
        image = shard.extractfile("class1/007.jpg")
        assert image is not None
        assert image.read() == (source / "class1" / "007.jpg").read_bytes()
    assert sorted(labels) == [0] * 20 + [1] * 20
    assert labels != sorted(labels)


def test_the_three_forms_of_a_source_give_the_same_images(tmp_path: Path) -> None:
    images = {f"c{label}": {f"{number}.JPEG": jpeg(10 * label + number) for number in range(4)} for label in range(2)}
    tar = tar_of_tars(tmp_path / "train.tar", images)
    lines = ["path,label"]
    for name, files in images.items():
        (tmp_path / "f" / name).mkdir(parents=True)
        for file, data in files.items():
            (tmp_path / "f" / name / file).write_bytes(data)
            lines.append(f"f/{name}/{file},{name}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    found = []
    for number, source in enumerate((tar, tmp_path / "f", tmp_path / "list.csv")):
        target = tmp_path / f"set{number}"
        manifest = ingest(source, str(target), Options(), processes=1).manifest
        assert manifest.classes == ["c0", "c1"]
        found.append({(label, data) for _, label, data in records(target).values()})
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 8


def test_a_shorter_edge_encodes_again(tmp_path: Path) -> None:
    ingest(folders(tmp_path / "source", each=3, edge=512), str(tmp_path / "set"), Options(shorter_edge=256), processes=1)
    # 512 x 520 halved
    assert {decode(data, 256).shape for _, _, data in records(tmp_path / "set").values()} == {(256, 260, 3)}


def test_bad_files_are_named_and_left_out(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=6)
    whole = jpeg(99)
    bad = {"empty": b"", "text": b"this is no picture", "cut": whole[: len(whole) // 2], "gif": b"GIF89a" + bytes(50)}
    for name, data in bad.items():
        (source / "class1" / f"{name}.jpg").write_bytes(data)
    done = ingest(source, str(tmp_path / "set"), SMALL, processes=1)
    named = [json.loads(line) for line in (tmp_path / "set" / "bad.jsonl").read_text().splitlines()]
    assert done.manifest.bad == len(bad)
    assert {Path(one["file"]).stem for one in named} == set(bad)
    assert all(one["reason"] for one in named)
    assert len(records(tmp_path / "set")) == 12


@pytest.mark.timeout(120)
def test_a_killed_ingest_goes_on_where_it_was_and_gives_the_same_bytes(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=60)
    ingest(source, str(tmp_path / "whole"), SMALL, processes=1)
    target = tmp_path / "set"
    command = [sys.executable, "-m", "mpca.cli", "ingest", str(source), str(target), "--withheld", "2", "--processes", "1"]
    command += ["--shard-size", "60000B", "--json"]
    killed = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def two_are_written() -> bool:
        assert killed.poll() is None
        return len(list(target.glob("_ingest/*.tar.json"))) >= 2

    wait_until(two_are_written, "two shards", every_s=0.002)  # often: the others follow at once
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (target / "manifest.json").exists(), "half of it is no data set"
    with pytest.raises(ConfigError, match=r"no data set: .* does not exist; `mpca ingest"):
        load_manifest(store_at(str(target)))
    before = {
        path: path.stat().st_mtime_ns for path in target.glob("*.tar") if (target / "_ingest" / f"{path.name}.json").exists()
    }
    with pytest.raises(ConfigError, match="unfinished ingest of another source, or with other options"):
        ingest(source, str(target), Options(seed=9), processes=1)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout) == {
        "target": str(target),
        "found": "resumed",
        "records": {"train": 116, "validation": 4},
        "bad": 0,
    }
    assert {path: path.stat().st_mtime_ns for path in before} == before, "what was complete was not written again"
    assert digest(target) == digest(tmp_path / "whole")
    assert ingest(source, str(target), SMALL, processes=1).found == "finished"


def test_a_decoder_that_dies_costs_the_file_that_it_died_of(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=5)
    (source / "slow").write_bytes(jpeg(77, edge=300))  # the one that is scaled, for which torch is imported: that takes seconds
    rows = [f"source/class{label}/{number:03d}.jpg,{label}" for label in range(2) for number in range(5)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows, "source/slow,1"]))
    target = tmp_path / "set"
    command = [
        sys.executable,
        "-m",
        "mpca.cli",
        "ingest",
        str(tmp_path / "list.csv"),
        str(target),
        "--processes",
        "1",
        "--json",
    ]
    ingesting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    os.kill(wait_until(lambda: _importing_torch(ingesting.pid), "a decoder that loads torch"), signal.SIGSEGV)
    out, _ = ingesting.communicate(timeout=60)
    assert json.loads(out)["records"] == {"train": 10}
    (line,) = (target / "bad.jsonl").read_text().splitlines()
    assert json.loads(line) == {"file": str(source / "slow"), "reason": "the decoder died of it: signal 11 (SIGSEGV)"}


def _importing_torch(parent: int) -> int:
    """The child of `parent` that has begun to load torch."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if "libtorch" in Path(f"/proc/{child}/maps").read_text():
            return int(child)
    return 0


@pytest.mark.timeout(120)
def test_what_is_no_plain_file_is_named_and_nobody_waits_for_it(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=5)
    os.mkfifo(source / "class0" / "fifo.jpg")
    (source / "class0" / "nowhere.jpg").symlink_to("gone")
    (source / "class1" / "folder.JPEG").mkdir()
    (source / "class1" / "inside").mkdir()
    (source / "class1" / "inside" / "deep.jpg").write_bytes(jpeg(50))
    (source / "class1" / "elsewhere").symlink_to(source / "class0")
    expected = {
        "fifo.jpg": "not a plain file: a FIFO",
        "nowhere.jpg": "No such file or directory",
        "folder.JPEG": "not a plain file: a directory",
        "elsewhere": "not a plain file: a directory",
    }
    done = ingest(source, str(tmp_path / "set"), Options(), processes=1)
    assert _named(tmp_path / "set") == expected
    assert done.manifest.splits["train"].by_class == [5, 6]
    paths = [path for folder in source.iterdir() for path in folder.iterdir() if path.name != "inside"]
    lines = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in paths]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    done = ingest(tmp_path / "list.csv", str(tmp_path / "again"), Options(), processes=1)
    assert _named(tmp_path / "again") == expected
    assert done.manifest.splits["train"].by_class == [5, 5]


def _named(target: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (target / "bad.jsonl").read_text().splitlines()]
    return {Path(one["file"]).name: one["reason"] for one in lines}


def test_empty_files_wherever_they_come_in_the_shuffle(tmp_path: Path) -> None:
    """All of a list's paths are wrong: every file counts as empty, the first one of the shuffle too."""
    (tmp_path / "list.csv").write_text("path,label\nnone/1.jpg,a\nnone/2.jpg,b\n")
    with pytest.raises(ConfigError, match="2 classes have no readable image to train on: a, b"):
        ingest(tmp_path / "list.csv", str(tmp_path / "set"), Options(), processes=1)
    source = folders(tmp_path / "source", classes=1, each=1)
    for seed in range(4):
        (source / "class0" / f"empty{seed}.jpg").write_bytes(b"")
        done = ingest(source, str(tmp_path / f"set{seed}"), Options(seed=seed), processes=1)
        assert (done.manifest.splits["train"].records, done.manifest.bad) == (1, seed + 1)


def _link(path: Path) -> Path:
    with tarfile.open(path, "w") as outer:
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w") as one:
            info = tarfile.TarInfo("x.jpg")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            one.addfile(info)
        info = tarfile.TarInfo("n1.tar")
        info.size = len(inner.getvalue())
        outer.addfile(info, io.BytesIO(inner.getvalue()))
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda at: at / "nowhere", "no such source: "),
        (lambda at: folders(at / "f", classes=1, each=0), "a class without an image: the folder "),
        (lambda at: at, "no image in "),
        (lambda at: tar_of_tars(at / "x.tar", {"n1": {"../x.jpg": b"1"}}), r"n1.tar holds '../x.jpg', .* refused"),
        (lambda at: _link(at / "x.tar"), r"n1.tar holds 'x.jpg', which is not a plain file"),
        (lambda at: tar_of_tars(at / "x.tar", {"n1": {}}), "a class without an image: n1.tar"),
        (
            lambda at: folders(at / "f", classes=2, each=2),
            "nothing is left to train on: class class0 has 2 records, withheld=2",
        ),
    ],
)
def test_a_source_that_cannot_be_is_refused_and_nothing_is_written(tmp_path: Path, make, says: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    with pytest.raises(ConfigError, match=says):
        ingest(make(source), str(tmp_path / "set"), SMALL, processes=1)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file,class\n", "must name the columns path and label"),
        ("path,label\na.jpg,\nb.jpg,1\nc.jpg,\n", "2 rows lack a path or a label, the first in line 2"),
        ("path,label\n", "no image in"),
    ],
)
def test_a_list_that_cannot_be_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(ConfigError, match=says):
        ingest(tmp_path / "list.csv", str(tmp_path / "set"), Options(), processes=1)


def test_a_class_of_bad_files_alone_is_refused_at_the_end_by_name(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=2, each=3)
    for file in (source / "class1").iterdir():
        file.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="1 classes have no readable image to train on: class1"):
        ingest(source, str(tmp_path / "set"), Options(), processes=1)
    assert not (tmp_path / "set" / "manifest.json").exists()


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty, and holds no ingest"):
        ingest(folders(tmp_path / "source"), str(tmp_path / "set"), Options(), processes=1)
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["mine.txt"]


def test_generated_photographs_depend_on_the_seed_alone_and_lie_as_imagenet_does(tmp_path: Path) -> None:
    one = tmp_path / "one.tar"
    assert generate(one, images=5, classes=2, seed=3, processes=2) == one.stat().st_size
    found = listing(one)
    assert found.classes == ["n00000000", "n00000001"]
    assert Counter(item.label for item in found.items) == {0: 3, 1: 2}
    for item in found.items:
        data = one.read_bytes()[item.offset : item.offset + item.length]
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        assert 300 <= min(height, width) <= max(height, width) <= 600
        assert 25_000 < len(data) < 200_000
        number = int(item.key.rpartition("_")[2])
        assert data == image(3, item.label, 2, number)
        assert data != image(4, item.label, 2, number)


def test_images_to_test_on_are_a_split_of_their_own_beside_what_is_withheld(tmp_path: Path) -> None:
    source = folders(tmp_path / "source", classes=3, each=6)
    tests = folders(tmp_path / "tests", classes=2, each=4)  # of class2 there are none
    done = ingest(source, str(tmp_path / "set"), SMALL, processes=1, test=tests)
    splits = done.manifest.splits
    assert {split: of.by_class for split, of in splits.items()} == {
        "train": [4, 4, 4],
        "validation": [2, 2, 2],
        "test": [4, 4, 0],
    }
    store = store_at(str(tmp_path / "set"))
    index = load_index(store, done.manifest, "test")
    keys = {index.entry(number).key for number in range(len(index))}
    assert keys == {f"class{label}/{number:03d}" for label in range(2) for number in range(4)}
    path = str(tmp_path / "set")
    check("imagenet", 2, {"path": path})
    assert [len(load("imagenet", split, path=path)) for split in ("train", "validation", "test")] == [12, 6, 8]
    assert ingest(source, path, SMALL, processes=1, test=tests).found == "finished"
    with pytest.raises(ConfigError, match="another source, or with other options"):
        ingest(source, path, SMALL, processes=1)
    with pytest.raises(ConfigError, match=r"2 classes of .*set2 are not classes of the training source: dog, wolf; a class"):
        ingest(source, str(tmp_path / "other"), SMALL, processes=1, test=_renamed(tests, tmp_path / "set2"))


def _renamed(folder: Path, to: Path) -> Path:
    folder.rename(to)
    for old, new in (("class0", "dog"), ("class1", "wolf")):
        (to / old).rename(to / new)
    return to
