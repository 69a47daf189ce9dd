"""CIFAR-10's files in both forms, generated small, and what training and evaluation see of them."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from mpca import data
from mpca.data.cifar10_files import TEST, TRAIN, read, samples
from mpca.data.epochs import Epochs
from mpca.data.share import Share
from mpca.errors import ConfigError

RECORDS = 40  # of each file: four of each class; the real ones have 10,000


def content(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, uint8[n, 3072], and labels of one file: every file other numbers."""
    generator = np.random.default_rng(len(name) * 1000 + ord(name[-1]))
    return generator.integers(256, size=(RECORDS, 3072), dtype=np.uint8), generator.permutation(RECORDS) % 10


def binary(folder: Path) -> Path:
    for name in (*TRAIN, *TEST):
        pixels, labels = content(name)
        records = b"".join(bytes([label]) + row.tobytes() for row, label in zip(pixels, labels, strict=True))
        (folder / f"{name}.bin").write_bytes(records)
    return folder


def old_bytes(value: bytes) -> bytes:
    """BINSTRING, as Python 2 wrote its strings."""
    return b"T" + struct.pack("<i", len(value)) + value


def python2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Protocol 2 as the published files are, opcode by opcode: a dictionary of a numpy array and a list."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"  # GLOBAL
        b"cnumpy\nndarray\n" + b"K\x00\x85" + old_bytes(b"b") + b"\x87R"  # (ndarray, (0,), "b") -> REDUCE
        b"(K\x01" + b"J" + struct.pack("<i", len(pixels)) + b"M\x00\x0c\x86"  # MARK, version 1, shape
        b"cnumpy\ndtype\n" + old_bytes(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + old_bytes(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"  # the type's own state -> BUILD
        b"\x89" + old_bytes(pixels.tobytes()) + b"tb"  # not in Fortran's order, bytes -> BUILD
    )
    numbers = b"](" + b"".join(b"J" + struct.pack("<i", label) for label in labels) + b"e"
    return b"\x80\x02}(" + old_bytes(b"data") + array + old_bytes(b"labels") + numbers + b"u."


def pickled(folder: Path) -> Path:
    for name in (*TRAIN, *TEST):
        pixels, labels = content(name)
        (folder / name).write_bytes(python2_pickle(pixels, labels.tolist()))
    return folder


@pytest.fixture(params=[binary, pickled], ids=["binary", "pickles"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return request.param(tmp_path)


def load(folder: Path, split: str, seed: int = 0, **options):
    return data.load("cifar10", split, seed, path=str(folder), **options)


def test_our_generated_pickle_is_one_that_python_itself_reads() -> None:
    pixels, labels = content("test_batch")
    theirs = pickle.loads(python2_pickle(pixels, labels.tolist()), encoding="bytes")
    assert np.array_equal(theirs[b"data"], pixels)
    assert theirs[b"labels"] == labels.tolist()


def test_both_forms_give_the_same_images_and_labels(folder: Path) -> None:
    images, labels = read(str(folder), TRAIN[:2])
    one, other = content(TRAIN[0]), content(TRAIN[1])
    assert images.shape == (2 * RECORDS, 3, 32, 32)
    assert np.array_equal(images.reshape(-1, 3072), np.concatenate([one[0], other[0]]))
    assert np.array_equal(labels, np.concatenate([one[1], other[1]]))


def test_a_tenth_of_each_class_is_withheld_and_no_image_is_in_two_splits(folder: Path) -> None:
    assert samples(str(folder)) == {"train": 180, "validation": 20, "test": 40}
    splits = {split: load(folder, split, flip_test=False) for split in ("train", "validation", "test")}
    assert {split: len(one) for split, one in splits.items()} == samples(str(folder))
    assert torch.bincount(splits["validation"].tensors[1]).tolist() == [2] * 10
    assert torch.bincount(splits["train"].tensors[1]).tolist() == [18] * 10
    mean = splits["train"].tensors[0].double().mean(dim=(0, 2, 3))
    raw = (splits["validation"].tensors[0] * 255 + mean[:, None, None]).round().to(torch.uint8)
    training = {image.numpy().tobytes() for image in splits["train"].tensors[0]}
    withheld = {image.numpy().tobytes() for image in raw}
    everything = {row.tobytes() for name in TRAIN for row in content(name)[0]}
    assert training | withheld == everything
    assert not training & withheld
    other = load(folder, "validation", seed=1, flip_test=False)
    assert not torch.equal(other.tensors[0], splits["validation"].tensors[0]), "another seed withholds others"


def test_training_images_are_new_patches_of_the_same_image_at_every_look(folder: Path) -> None:
    train = load(folder, "train")
    torch.manual_seed(3)
    first, label = train[7]
    looks = [train[7][0] for _ in range(40)]
    assert first.shape == (3, 32, 32)
    assert first.dtype == torch.float32
    assert label == train.tensors[1][7]
    assert len({one.numpy().tobytes() for one in looks}) > 30
    mean = train.tensors[0].double().mean(dim=(0, 2, 3))
    # the rows that a patch shares with its image, whatever its flip and place, hold the image's numbers
    raw, whole = (first * 255 + mean[:, None, None]).round(), train.tensors[0][7].double()
    padded = torch.nn.functional.pad(whole, (4, 4, 4, 4))
    windows = [padded[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]
    assert any(torch.equal(raw.double(), one) or torch.equal(raw.double(), one.flip(2)) for one in windows)


def test_a_batch_is_read_at_once_and_follows_torchs_seed(folder: Path) -> None:
    def looks() -> torch.Tensor:
        torch.manual_seed(11)
        return load(folder, "train")[[3, 1, 2]][0]

    images, labels = load(folder, "train")[[3, 1, 2]]
    assert images.shape == (3, 3, 32, 32)
    assert labels.tolist() == load(folder, "train").tensors[1][[3, 1, 2]].tolist()
    assert torch.equal(looks(), looks())


def test_agents_share_it_and_data_workers_draw_apart(folder: Path) -> None:
    shares = [Share(load(folder, "train"), 16, seed=1, incarnation=0, epochs=Epochs(a, 2, 1)) for a in range(2)]
    assert sorted(label for share in shares for _, labels in share for label in labels.tolist()) == sorted(list(range(10)) * 18)

    class SameImage(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.train = load(folder, "train")

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> torch.Tensor:
            return self.train[0][0]

    batches = list(torch.utils.data.DataLoader(SameImage(), batch_size=2, num_workers=2))
    assert not torch.equal(batches[0], batches[1])


def test_test_images_are_flipped_once_as_the_paper_says_or_left(folder: Path) -> None:
    flipped, plain = load(folder, "test").tensors[0], load(folder, "test", flip_test=False).tensors[0]
    same = sum(torch.equal(one, other) for one, other in zip(flipped, plain, strict=True))
    mirrored = sum(torch.equal(one, other.flip(2)) for one, other in zip(flipped, plain, strict=True))
    assert same + mirrored == RECORDS
    assert 5 < same < 35
    assert torch.equal(load(folder, "test").tensors[0], flipped), "every evaluation sees the same images"


def test_the_configuration_names_it_and_text_is_read_by_type(folder: Path) -> None:
    data.check("cifar10", 8, {"path": str(folder), "flip_test": "false"})
    with pytest.raises(ConfigError, match=r"cluster.agents = 181: fewer samples than agents"):
        data.check("cifar10", 181, {"path": str(folder)})
    with pytest.raises(ConfigError, match=r"data.flip_test = 'perhaps': must be true or false"):
        data.check("cifar10", 8, {"path": str(folder), "flip_test": "perhaps"})
    with pytest.raises(ConfigError, match=r"unknown key data.pth: did you mean 'path'"):
        data.check("cifar10", 8, {"pth": str(folder)})


def refusal(folder: Path | str) -> str:
    with pytest.raises(ConfigError) as caught:
        data.check("cifar10", 1, {"path": str(folder)})
    assert "unpack cifar-10-binary.tar.gz" in str(caught.value)
    assert caught.value.key == "data.path"
    return str(caught.value)


def test_no_folder_or_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "data.path = '': must be the folder with CIFAR-10's files" in refusal("")
    (binary(tmp_path) / "data_batch_3.bin").unlink()
    assert "has neither data_batch_3.bin nor data_batch_3" in refusal(tmp_path)


def test_wrong_sizes_are_refused_with_the_file(tmp_path: Path) -> None:
    file = binary(tmp_path) / "test_batch.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert f"{file}': wrong size: {len(whole) - 1} bytes are no multiple of 3073" in refusal(tmp_path)
    file.write_bytes(b"")
    assert "wrong size: 0 bytes" in refusal(tmp_path)
    file.write_bytes(whole[:-3073])  # cut between two records
    assert "equally many records: {'data_batch_1': 40" in refusal(tmp_path)
    with file.open("wb") as stream:
        stream.truncate((64 << 20) + 1)
    assert "wrong size: 67108865 bytes, of at most 67108864" in refusal(tmp_path)


def test_labels_out_of_range_and_missing_classes_are_refused_at_the_start(tmp_path: Path) -> None:
    file = binary(tmp_path) / "data_batch_2.bin"
    whole = bytearray(file.read_bytes())
    whole[3073 * 5] = 10
    file.write_bytes(whole)
    assert f"{file}': label out of range: record=5, label=10, allowed=0..9" in refusal(tmp_path)
    for name in TRAIN:
        pixels, labels = content(name)
        (tmp_path / name).write_bytes(b"")
        records = [bytes([label % 9]) + row.tobytes() for row, label in zip(pixels, labels, strict=True)]
        (tmp_path / f"{name}.bin").write_bytes(b"".join(records))
    assert "no training image of classes [9]" in refusal(tmp_path)


class Evil:
    def __reduce__(self):
        return eval, ("open('/tmp/mpca-was-here', 'w')",)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda good: pickle.dumps({b"data": Evil(), b"labels": []}, 2), "asks for __builtin__.eval, which is not plain data"),
        (lambda good: pickle.dumps(Path("/"), 4), "asks for pathlib"),
        (lambda good: good[: len(good) // 2], "is no pickle of plain data"),
        (lambda good: b"not a pickle", "is no pickle of plain data"),
        (lambda good: pickle.dumps([1, 2], 2), "lacks 'data'"),
        (lambda good: pickle.dumps({b"data": b"abc", b"labels": [1]}, 2), "lacks 'data'"),
        (lambda good: python2_pickle(content("test_batch")[0], [1] * 39), "must be uint8[39, 3072]"),
        (lambda good: python2_pickle(content("test_batch")[0], [1] * 39 + [-1]), "record=39, label=-1"),
        (lambda good: python2_pickle(content("test_batch")[0], [1] * 39 + [257]), "record=39, label=257"),
        (lambda good: good.replace(b"u1", b"i1"), "must be uint8"),
        (lambda good: good.replace(b"\x89T", b"\x88T"), "must be uint8"),  # in Fortran's order
        (lambda good: pickle.dumps({b"data": np.zeros((1, 3072), object), b"labels": [1]}, 2), "must be uint8"),
    ],
)
def test_a_pickle_of_anything_else_is_refused_and_makes_nothing(tmp_path: Path, bad, says: str) -> None:
    file = pickled(tmp_path) / "test_batch"
    file.write_bytes(bad(file.read_bytes()))
    message = refusal(tmp_path)
    assert says in message
    assert str(file) in message
    assert not Path("/tmp/mpca-was-here").exists()


def test_a_pickle_that_todays_python_writes_is_read_too(tmp_path: Path) -> None:
    pickled(tmp_path)
    pixels, labels = content("test_batch")
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": labels.tolist()}, 2))
    assert np.array_equal(read(str(tmp_path), TEST)[0].reshape(-1, 3072), pixels)
