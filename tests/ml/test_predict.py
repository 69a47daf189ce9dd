"""Predictions of a batch of rows, as an executor makes them: what is added, and rows that are refused by their place."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import safetensors.torch
import simplejpeg
import torch
from torch import nn

from mpca.data.ingest_rows import Files
from mpca.errors import ConfigError
from mpca.ml import predict as module_of_predict
from mpca.ml.code import Recipe
from mpca.ml.predict import INDEX, LABEL, PROBABILITY, RAW, Input, Package, Serving, predict
from tests.ml import nets

ARRAYS = Serving("two", Input("float32", (2,)), "x", "array", ("bee", "wolf"), (LABEL, INDEX, RAW, PROBABILITY), 3, False)
GOOD = [np.array([1.0, number]) for number in range(7)]


def package(make: Any) -> tuple[Package, nn.Module]:
    module = make()
    code = cloudpickle.dumps((make, {}))
    return Package(code, safetensors.torch.save(module.state_dict())), module.eval()


def told(make: Any, serving: Serving, *batches: Any) -> pd.DataFrame:
    one, _ = package(make)
    module_of_predict._modules.clear()
    return pd.concat(predict(lambda: one, serving, iter(batches)), ignore_index=True)


def changed(serving: Serving = ARRAYS, **changes: Any) -> Serving:
    values = {name: getattr(serving, name) for name in Serving.__slots__}
    return Serving(**{**values, **changes})


def test_each_row_has_its_label_and_its_numbers_whatever_the_batches() -> None:
    one, module = package(nets.two)
    module_of_predict._modules.clear()
    found = pd.concat(predict(lambda: one, ARRAYS, iter([pd.Series(GOOD[:5]), pd.Series(GOOD[5:])])), ignore_index=True)
    raw = module(torch.tensor(np.array(GOOD), dtype=torch.float32)).detach().double()
    assert np.allclose(np.stack(found[RAW]), raw.numpy())
    assert np.allclose(np.stack(found[PROBABILITY]), raw.softmax(1).numpy())
    assert found[INDEX].tolist() == raw.argmax(1).double().tolist()
    assert found[LABEL].tolist() == [("bee", "wolf")[one] for one in raw.argmax(1)]


def test_a_process_keeps_a_module_for_its_next_task() -> None:
    one, _ = package(nets.two)
    module_of_predict._modules.clear()
    list(predict(lambda: one, ARRAYS, iter([pd.Series(GOOD)])))
    (kept,) = module_of_predict._modules.values()
    list(predict(lambda: pytest.fail("it is there already"), ARRAYS, iter([pd.Series(GOOD)])))
    assert list(module_of_predict._modules.values()) == [kept]
    for key in "ab":
        list(predict(lambda: one, changed(model=key), iter([pd.Series(GOOD)])))
    assert list(module_of_predict._modules) == ["a", "b"], "no more than two"


def test_one_output_is_the_margin_of_the_second_class() -> None:
    one, module = package(nets.half)
    module_of_predict._modules.clear()
    (found,) = predict(lambda: one, ARRAYS, iter([pd.Series(GOOD)]))
    margin = module(torch.tensor(np.array(GOOD), dtype=torch.float32)).detach().numpy()[:, 0]
    assert np.allclose(np.stack(found[RAW]), np.stack([-margin, margin], 1))
    assert found[INDEX].tolist() == (margin > 0).astype(float).tolist()
    assert np.allclose(np.stack(found[PROBABILITY])[:, 1], 1 / (1 + np.exp(-margin)))
    assert np.allclose(np.stack(found[PROBABILITY]).sum(1), 1)


def test_nested_arrays_and_whole_numbers() -> None:
    def flat() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))

    rows = [np.array([np.array([1.0, 2.0]), np.array([3.0, 4.0])], dtype=object) for _ in range(2)]
    assert len(told(flat, changed(input=Input("float32", (2, 2))), pd.Series(rows))) == 2
    assert len(told(nets.tokens, changed(input=Input("int64", (2,))), pd.Series([np.array([1, 9])]))) == 1


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*GOOD, None], r"^column 'x' is null: row 7; leave such rows out: df.na.drop\(subset=\['x'\]\)$"),
        (
            [*GOOD, np.array([1.0])],
            r"has a row of shape \(1,\): row 7; the model was fitted on float32 of shape \(2,\): give it",
        ),
        ([np.array([1.0, 2.0, 3.0])], r"has a row of shape \(3,\): row 0; the model was fitted on"),
        ([*GOOD, np.array([1.0, np.nan])], "^column 'x' holds null, NaN or infinite numbers: row 7; fill them"),
        ([*GOOD, np.array([1.0, 1e300])], "holds null, NaN or infinite numbers: row 7; fill them"),
        ([GOOD[0], np.array([1.0, None], dtype=object)], "holds null, NaN or infinite numbers: row 1; fill them"),
        ([np.array([[1.0], 2.0], dtype=object)], "^column 'x' is ragged inside, or holds null: row 0; fill it"),
    ],
)
def test_rows_that_the_model_cannot_take_are_refused_by_their_place(rows: list[Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        told(nets.two, ARRAYS, pd.Series(rows))


@pytest.mark.parametrize(
    ("rows", "shape"), [([[1, 9], [1, None]], (2,)), ([[[1, 2], [3, 4]], [[1, 2], [3, None]]], (2, 2))], ids=["flat", "nested"]
)
def test_a_null_among_whole_numbers_is_refused(rows: list[Any], shape: tuple[int, ...]) -> None:
    as_spark_gives_them = pd.concat([pa.array([one]).to_pandas() for one in rows], ignore_index=True)
    with pytest.raises(ConfigError, match=r"^column 'x' is ragged inside, or holds null: row 1; fill it, or leave such rows"):
        told(nets.tokens, changed(input=Input("int64", shape)), as_spark_gives_them)


def test_images_are_seen_as_in_training_and_a_bad_one_has_null(tmp_path: Path) -> None:
    pixels = np.full((40, 50, 3), (200, 10, 10), np.uint8)
    jpeg = simplejpeg.encode_jpeg(pixels, 95, "RGB", "444")
    (tmp_path / "good.jpg").write_bytes(jpeg)
    images = changed(input=Input(means=(100.0, 100.0, 100.0), crop=16, shorter_edge=20), outputs=(INDEX, RAW))
    one, module = package(nets.image_net)
    module_of_predict._modules.clear()
    view = (torch.tensor([200.0, 10.0, 10.0]) - 100).reshape(1, 3, 1, 1).expand(1, 3, 16, 16) / 255
    raw = module(view).detach().numpy()[0]
    struct = {"origin": "a", "height": 40, "width": 50, "nChannels": 3, "mode": 16}
    bad = {**struct, "height": -1, "width": -1, "mode": -1, "data": b""}
    for kind, batch in (
        ("binary", pd.Series([b"no image", jpeg])),
        ("path", pd.Series([str(tmp_path / "none.jpg"), f"file:{tmp_path}/good.jpg"])),
        ("image", pd.DataFrame([bad, {**struct, "data": pixels[..., ::-1].tobytes()}])),
    ):
        (found,) = predict(lambda: one, changed(images, kind=kind), iter([batch]))
        assert found[INDEX][0] is None, kind
        assert found[RAW][0] is None, kind
        assert np.allclose(found[RAW][1], raw, atol=0.02), kind
    with pytest.raises(ConfigError, match=r"^column 'x' is null: row 0; leave such rows out"):
        list(predict(lambda: one, changed(images, kind="binary"), iter([pd.Series([None, jpeg])])))


def test_a_loss_of_one_output_has_targets_like_it() -> None:
    logits = nn.functional.binary_cross_entropy_with_logits
    outputs, labels = torch.tensor([[2.0], [-1.0]]), torch.tensor([1, 0])
    expected = -torch.log(torch.tensor([torch.sigmoid(torch.tensor(2.0)), 1 - torch.sigmoid(torch.tensor(-1.0))])).mean()
    for shaped in (outputs, outputs.squeeze(1)):
        assert torch.isclose(Recipe(nets.half, logits, torch.optim.SGD).loss_of(shaped, labels), expected)


def test_a_null_image_is_refused_and_not_the_good_ones_beside_it() -> None:
    pixels = {"origin": "a", "height": 8, "width": 8, "nChannels": 1, "mode": 0, "data": bytes(64)}
    fields = [(name, pa.string() if name == "origin" else pa.binary() if name == "data" else pa.int32()) for name in pixels]
    arrow = pa.array([pixels, None], pa.struct(fields))
    as_spark_gives_them = pd.DataFrame({name: one.to_pandas() for name, one in zip(pixels, arrow.flatten(), strict=True)})
    images = changed(kind="image", input=Input(means=(100.0, 100.0, 100.0), crop=8, shorter_edge=8), outputs=(INDEX,))
    with pytest.raises(ConfigError, match=r"^column 'x' is null: row 1; leave such rows out"):
        told(nets.image_net, images, as_spark_gives_them)


@pytest.mark.parametrize("number", [errno.EIO, errno.ECONNREFUSED, errno.ETIMEDOUT])
def test_a_storage_that_fails_ends_the_job_and_gives_no_nulls(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(self: Files, name: str) -> bytes:
        raise OSError(number, "no answer", name)

    monkeypatch.setattr(Files, "read", fail)
    paths = changed(kind="path", input=Input(means=(100.0, 100.0, 100.0), crop=8, shorter_edge=8), outputs=(INDEX,))
    with pytest.raises(OSError, match=r"no answer: 'hdfs://nn/a\.jpg'"):
        told(nets.image_net, paths, pd.Series(["hdfs://nn/a.jpg"]))
