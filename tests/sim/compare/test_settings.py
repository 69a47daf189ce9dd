"""Files of `mpca compare`: what is read, and what is refused in words that help."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from mpca.errors import ConfigError
from mpca.methods import MPCA, Sync
from mpca.sim.compare.plan import Plan
from mpca.sim.compare.settings import PARTS, Conf, Entry, Shared, load, setting_of

ROOT = Path(__file__).resolve().parents[3]
SINGLE = '[[method]]\nname = "single"\n'
SYNC = '[[method]]\nname = "sync"\n'


def read(tmp_path: Path, text: str, part: str = "") -> Conf:
    path = tmp_path / "compare.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, part)


@pytest.mark.parametrize("part", ["", *PARTS])
def test_the_file_that_comes_with_mpca_is_read(part: str) -> None:
    conf, quick = load(ROOT / "conf" / "compare.toml", part), part == "quick"
    assert conf.shared.task == ("warped-digits" if part == "digits" else "mixture")
    assert (conf.shared.seeds, conf.shared.tuning_seeds) == (5, 2)
    assert conf.reference.label == "single"
    assert conf.shared.ratios == (("ResNet-152",) if part else ("ResNet-110", "ResNet-152", "VGG-A"))
    labels = {entry.label for entry in conf.entries}
    assert {"single", "K-batch, free", "sync", "mpca"} <= labels
    assert quick or {"single, EMA", "mpca, gamma 0", "mpca, no burst"} <= labels
    assert len(Plan(conf).look({}).missing) == sum(
        len(entry.grid(29.2)) for entry in conf.entries if entry.name != "single"
    ) * (len(conf.shared.ratios)) + sum(len(entry.grid(29.2)) for entry in conf.entries if entry.name == "single")


def test_numbers_of_a_method_and_what_is_tuned_make_the_method(tmp_path: Path) -> None:
    text = f'{SINGLE}[[method]]\nlabel = "ours"\nname = "mpca"\ngamma = 0.5\ntune.shards = [3, 12]\n[compare]\ntrials = 6'
    entry = read(tmp_path, text).entries[1]
    assert entry.grid(10.0) == [{"shards": 3}, {"shards": 12}]
    assert entry.method({"shards": 12}) == MPCA(gamma=0.5, shards=12)


def test_numbers_need_only_fit_what_is_tuned_beside_them(tmp_path: Path) -> None:
    text = f'{SINGLE}[[method]]\nname = "diloco"\noverlap = true\nphases = 3\ntune.fragments = [3, 6, 12]\n'
    assert [one["fragments"] for one in read(tmp_path, text).entries[1].grid(10.0)] == [3, 6, 12]
    with pytest.raises(ConfigError, match=r"method.phases = 3: must lie between 1 and 2"):
        read(tmp_path, text.replace("[3, 6, 12]", "[2, 6, 12]"))


def test_what_cuts_the_model_is_tuned_alike_for_all_that_have_it() -> None:
    conf = load(ROOT / "conf" / "compare.toml")
    cut = {"mpca": "shards", "diloco": "fragments"}
    rows = [entry for entry in conf.entries if entry.name in cut and "blocking" not in entry.label]
    assert len(rows) > 5
    assert {entry.tune[cut[entry.name]] for entry in rows} == {(3, 6, 12)}


def test_e_is_the_time_of_an_exchange_in_updates(tmp_path: Path) -> None:
    entry = read(tmp_path, f'{SINGLE}{SYNC}tune.tau = ["0.001 E", "0.5 E", "2.5 E"]\n').entries[1]
    assert [entry.method(one) for one in entry.grid(11.6)] == [Sync(1), Sync(6), Sync(29)]


def test_a_ratio_is_a_number_or_a_model_of_the_paper(tmp_path: Path) -> None:
    conf = read(tmp_path, f'[compare]\nratios = [2.5, "VGG-A"]\nstep = "200ms"\n{SINGLE}')
    number, model = (setting_of(one, 8, conf.shared.step, conf.shared.bandwidth) for one in conf.shared.ratios)
    assert number.model_bytes / number.rate / number.step_s == pytest.approx(2.5)
    assert model.model_bytes / model.rate / model.step_s == pytest.approx(8.69, abs=0.01)
    assert (number.step_s, model.step_s) == (0.2, 0.474)


def test_quick_replaces_keys_and_leaves_the_methods_that_it_names(tmp_path: Path) -> None:
    text = f'[compare]\nupdates = 9\nseed = 3\n[quick]\nupdates = 7\nmethods = ["single"]\n{SINGLE}{SYNC}'
    plain, quick = read(tmp_path, text), read(tmp_path, text, part="quick")
    assert (plain.shared.updates, quick.shared.updates, quick.shared.seed) == (9, 7, 3)
    assert ([one.label for one in plain.entries], [one.label for one in quick.entries]) == (["single", "sync"], ["single"])


def test_a_part_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--digits needs a section \[digits\].*compare.toml"):
        read(tmp_path, SINGLE, part="digits")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no methods to compare"),
        ("[compare\n", "is not TOML"),
        (f"[compair]\n{SINGLE}", "unknown section [compair]: did you mean 'compare'?"),
        (f"[compare]\nrate = [1, 2]\n{SINGLE}", "unknown key compare.rate: did you mean 'rates'?"),
        (f"[quick]\nupdate = 1\n{SINGLE}", "unknown key quick.update: did you mean 'updates'?"),
        (f'[compare]\nupdates = "many"\n{SINGLE}', "compare.updates = 'many': must be a whole number"),
        (f"[compare]\nagents = 8\n{SINGLE}", "compare.agents = 8: must be a list that is not empty"),
        (f"[compare]\nagents = [1]\n{SINGLE}", "each must be 2 or more"),
        (f"[compare]\nagents = [8, 8]\n{SINGLE}", "compare.agents = [8, 8]: has a value twice"),
        (f'[compare]\nratios = [2.5, "2.5"]\n{SINGLE}', "compare.ratios = ['2.5', '2.5']: has a value twice"),
        (f'[compare]\nratios = ["ResNet-151"]\n{SINGLE}', "did you mean 'ResNet-152'?"),
        (f"[compare]\nratios = [-1]\n{SINGLE}", "must be a number above 0"),
        (f"[compare]\nrates = [0.1]\n{SINGLE}", "must be the smallest and the largest rate"),
        (f"[compare]\nrates = [0.2, 0.1]\n{SINGLE}", "must be the smallest and the largest rate"),
        (f'[compare]\ntask = "digits"\n{SINGLE}', "compare.task = 'digits': must be one of mixture, warped-digits"),
        (f'[compare]\nstep = "fast"\n{SINGLE}', "compare.step = 'fast': not a duration"),
        (f'[compare]\nbandwidth = "1 Gb"\n{SINGLE}', "compare.bandwidth = '1 Gb': not a rate"),
        (f'[compare]\nbandwidth = "0mbit"\n{SINGLE}', "compare.bandwidth = '0mbit': must be above 0"),
        (f"[compare]\ntarget_shares = [1.5]\n{SINGLE}", "each must lie above 0, and be at most 1"),
        (f"[compare]\nseeds = 0\n{SINGLE}", "compare.seeds = 0: must be above 0"),
        (f"[compare]\nseeds = 2000\n{SINGLE}", "compare.seeds = 2000: must be at most 1000"),
        (f'{SINGLE}[[method]]\nname = "synk"\n', "method.name = 'synk': no such method; did you mean 'sync'?"),
        (f"{SINGLE}{SYNC}taw = 5\n", "unknown key method 'sync'.taw: did you mean 'tau'?"),
        (f"{SINGLE}{SYNC}contrl = true\n", "unknown key method 'sync'.contrl: did you mean 'control'?"),
        (f"{SINGLE}{SYNC}tau = 0\n", "method.tau = 0: must be 1 or more"),
        (f"{SINGLE}{SYNC}tune.tau = [5, 0]\n", "method.tau = 0: must be 1 or more"),
        (f"{SINGLE}{SYNC}tune.tua = [5]\n", "unknown key method 'sync'.tua: did you mean 'tau'?"),
        (f"{SINGLE}{SYNC}tune.tau = 5\n", "must be a list of values to try"),
        (f'{SINGLE}{SYNC}tune.tau = ["x E"]\n', "must be a number"),
        (f"{SINGLE}{SYNC}tune.tau = [1, 2]\n", "must be a multiple of 2, and at least 6: 'sync' has 2 settings"),
        (f"{SINGLE}{SYNC}tune.tau = [3, 3, 5]\n", "method 'sync'.tune = {'tau': (3, 3, 5)}: has equal settings at K = 8"),
        (
            f'[compare]\nratios = ["ResNet-152", 0.001]\nstep = "10s"\n{SINGLE}{SYNC}tune.tau = ["0.5 E", "1 E", "2 E"]\n',
            "has equal settings at K = 8, b/C = 0.001 ([{'tau': 1}, {'tau': 1}, {'tau': 1}])",
        ),
        (f"{SINGLE}{SYNC}k_batch = true\n", 'needs name = "single"'),
        (f'{SINGLE}{SYNC}optimizer = "adams"\n', "must be one of adam, adamw, nesterov, sgd"),
        (f"{SINGLE}{SINGLE}", "two methods have the label 'single'"),
        (SYNC, "targets come from one [[method]]"),
        (f"{SINGLE}tune.ema = [0.9, 0.95, 0.98]\n", "targets come from one [[method]]"),
        (f'[quick]\nmethods = ["snyc"]\n{SINGLE}{SYNC}', "quick.methods = 'snyc': no such label; did you mean 'sync'?"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert "compare.toml" in str(refused.value)


def test_quick_without_single_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="targets come from one"):
        read(tmp_path, f'[quick]\nmethods = ["sync"]\n{SINGLE}{SYNC}', part="quick")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: .*none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_the_page_explains_every_key() -> None:
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    of_entry = {"tune", "control", "k_batch", "contested", "optimizer", "rates", "label", "name"}
    assert {one.name for one in fields(Entry)} - {"numbers"} == of_entry
    missing = [key for key in (*(one.name for one in fields(Shared)), *of_entry) if f"`{key}`" not in page]
    assert not missing
