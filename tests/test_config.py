"""Where values come from, what is refused and in which words, and that what a run writes is read again."""

from __future__ import annotations

import ast
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.checks import keywords
from mpca.config import sections, sources
from mpca.config.resolved import ORIGINS, Resolved
from mpca.environment import child_environment, environment
from mpca.errors import ConfigError
from mpca.methods import MPCA, NesterovMPCA, Sync, from_dict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {"run", "model", "data", "optimizer", "objectives", "cluster", "backup", "track"}


def load(path: Path | None = None, *sets: str, spark: dict[str, str] | None = None) -> Resolved:
    return sources.load(path, sets, spark, method=from_dict)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


# ---- where values come from ----------------------------------------------------------------------------------------


def test_defaults_alone_are_a_whole_configuration() -> None:
    resolved = load()
    assert resolved.method == NesterovMPCA()
    assert resolved.cluster.start_timeout == 180.0
    assert resolved.objectives.target_error == 0.0
    assert set(resolved.origins.values()) == {"default"}


def test_later_sources_win_and_each_key_says_its_own(file: Any) -> None:
    path = file("[method]\nname = 'mpca'\nalpha = 0.1\nbeta = 0.8\ngamma = 0.5\n")
    resolved = load(path, "method.gamma=0.2", spark={"spark.mpca.method.gamma": "0.3", "spark.mpca.method.beta": "0.7"})
    assert (resolved.method.alpha, resolved.method.beta, resolved.method.gamma) == (0.1, 0.7, 0.2)
    origins = [resolved.origins[f"method.{key}"] for key in ("delta", "alpha", "beta", "gamma")]
    assert origins == list(ORIGINS)


@pytest.mark.parametrize(
    ("text", "section", "key", "value"),
    [
        ("objectives.max_time=75s", "objectives", "max_time", 75.0),
        ("objectives.max_time=0", "objectives", "max_time", 0.0),
        ("objectives.target_error=0.0", "objectives", "target_error", 0.0),
        ("objectives.max_cycles=12", "objectives", "max_cycles", 12),
        ("cluster.cycle_deadline=1500 ms", "cluster", "cycle_deadline", 1.5),
        ("cluster.finish_timeout=20m", "cluster", "finish_timeout", 1200.0),
        ("cluster.chunk=16KiB", "cluster", "chunk", 16384),
        ("cluster.executor_memory=1.5GiB", "cluster", "executor_memory", 3 << 29),
        ("run.name=night=1", "run", "name", None),
        ("run.name= spaced ", "run", "name", "spaced"),
        ("optimizer.lr=1e-2", "optimizer", "lr", 0.01),
        ("method.correction=yes", "method", "correction", True),
    ],
)
def test_bare_text_is_read_by_the_keys_type(text: str, section: str, key: str, value: object) -> None:
    if value is None:
        with pytest.raises(ConfigError, match=r"run.name = 'night=1'"):
            load(None, text)
        return
    assert getattr(getattr(load(None, text), section), key) == value


@pytest.mark.parametrize("other", ["cluster.reducer=tree", "cluster.broadcast=torrent"])
def test_a_codec_needs_our_own_transport(other: str) -> None:
    key, value = other.split("=")
    for codec in ("bf16", "int8", "int4"):
        assert load(None, f"cluster.codec={codec}").cluster.codec == codec
        with pytest.raises(ConfigError, match=rf'^cluster\.codec = \'{codec}\'.*: needs {key} = "(ranges|relay)"'):
            load(None, f"cluster.codec={codec}", other)
    assert getattr(load(None, "cluster.codec=none", other).cluster, key.split(".")[1]) == value


def test_another_method_on_the_command_line_drops_the_files_numbers(file: Any) -> None:
    path = file('[method]\nname = "mpca"\nalpha = 0.1\n')
    assert load(path, "method.tau=3", "method.name=sync").method == Sync(tau=3)
    assert load(path, "method.name=mpca").method == MPCA(alpha=0.1)
    assert load(file("[method]\nshards = 5\n"), "method.name=mpca-nesterov").method == NesterovMPCA(shards=5)
    assert load(file("[method]\nshards = 5\n"), "method.name=mpca").method == MPCA()


def test_sparks_settings_pass_through_in_any_spelling(file: Any) -> None:
    path = file('[spark]\nexecutor.cores = 4\n"spark.ui.enabled" = false\nspark.eventLog.dir = "x"\n')
    resolved = load(path, "spark.executor.cores=6")
    assert resolved.spark == {"spark.executor.cores": "6", "spark.ui.enabled": "false", "spark.eventLog.dir": "x"}
    assert resolved.origins["spark.executor.cores"] == "command line"


def test_a_models_own_keys_are_handed_to_it(file: Any) -> None:
    assert load(file('[model]\nname = "digits_mlp"\nhidden = 64\n')).model.options == {"hidden": 64}


# ---- what a run writes is read again -------------------------------------------------------------------------------


def test_written_configuration_is_read_as_an_equal_one(file: Any, tmp_path: Path) -> None:
    path = file('[run]\nname = "n"\n[model]\ndepth = 3\n[objectives]\nmax_time = "1h"\n[spark]\nui.enabled = true\n')
    first = load(path, "method.shards=5", "cluster.chunk=100KiB")
    first.write(tmp_path / "config.toml")
    second = load(tmp_path / "config.toml")
    assert second.to_dict() == first.to_dict()
    assert set(second.origins.values()) == {"file"}


def test_a_configuration_of_a_later_format_is_refused_before_its_keys_are_read(file: Any) -> None:
    path = file("format = 2\n[new]\nkey = 1\n")
    with pytest.raises(ConfigError, match=r"\.toml has format 2, this mpca reads 1: use a newer mpca$"):
        load(path)
    assert load(file("format = 1\n[run]\nseed = 7\n")).run.seed == 7


def test_written_configuration_has_every_key_and_its_origin(tmp_path: Path) -> None:
    load(None, "run.seed=7").write(tmp_path / "config.toml")
    tables = tomllib.loads((tmp_path / "config.toml").read_text())
    origin = tables.pop("origin")
    assert tables.pop("format") == 1
    keys = {f"{section}.{key}" for section, table in tables.items() for key in table}
    assert keys == set(origin)
    assert origin["run.seed"] == "command line"
    assert origin["run.name"] == "default"
    assert tables["objectives"]["max_time"] == "0s"


@given(st.floats(0.001, 1e6), st.integers(450 << 20, 1 << 45))
def test_quantities_keep_their_value_through_text(seconds: float, size: int) -> None:
    resolved = load(None, f"cluster.cycle_deadline={seconds:.9f}s", f"cluster.executor_memory={size}B")
    again = load(None, *(f"cluster.{k}={v}" for k, v in resolved.to_dict()["cluster"].items()))
    assert again.cluster.executor_memory == size
    assert again.cluster.cycle_deadline == pytest.approx(seconds, abs=1e-9)


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster.agnets=3", r"unknown key cluster.agnets: did you mean 'agents'\? \(set by --set cluster.agnets\)"),
        ("clutser.agents=3", r"unknown section of clutser.agents \(--set clutser.agents\): did you mean 'cluster'"),
        ("cluster=3", r"--set cluster: cluster is a section"),
        ("nonsense", r"--set nonsense: must be section.key=value"),
        ("method.alpha=1.5", r"""method.alpha = 1.5: must lie in \[0, 1\], or be "auto" \(set by --set method.alpha\)"""),
        ("method.alhpa=0.5", r"unknown key method.alhpa: did you mean 'alpha'.*--set method.alhpa"),
        ("objectives.max_time=75", r"objectives.max_time = '75': not a duration.*such as 90s"),
        ("objectives.max_time=-5s", r"objectives.max_time = '-5s': not a duration"),
        ("objectives.target_error=2.5", r"objectives.target_error = 2.5.*0.025 is 2.5 %"),
        ("cluster.chunk=8KiB", r"cluster.chunk = 8192: must lie between 16KiB and 1MiB"),
        ("cluster.agents=many", r"cluster.agents = 'many': must be a whole number"),
        ("cluster.agents=0", r"cluster.agents = 0: must be 1 or more"),
        ("cluster.min_agents=9", r"cluster.min_agents = 9: must be at most cluster.agents = 2"),
        ("cluster.agents_per_executor=9", r"cluster.agents_per_executor = 9"),
        ("cluster.cycle_deadline=0", r"cluster.cycle_deadline = 0.*above 0"),
        ("cluster.finish_timeout=-5s", r"cluster.finish_timeout"),
        ("cluster.executor_memory=449MiB", r"cluster.executor_memory = 470810624: must be 450MiB or more"),
        ("spark.driver.memory=449m", r"spark.driver.memory = '449m': must be 450MiB or more.*--set spark.driver.memory"),
        ("spark.executor.memory=449", r"spark.executor.memory = '449': must be 450MiB or more"),  # MiB
        ("spark.driver.memory=much", r"spark.driver.memory = 'much': not a size"),
        ("cluster.reducer=range", r"cluster.reducer = 'range': must be one of ranges, tree; did you mean 'ranges'"),
        ("cluster.codec=int2", r"cluster.codec = 'int2': must be one of .*none, bf16, int8, int4; did you mean 'int[48]'"),
        ("cluster.codec=", r"cluster.codec = ''"),
        ("cluster.device=tpu", r"cluster.device = 'tpu'"),
        ("backup.keep=0", r"backup.keep = 0"),
        ("data.max_bad_fraction=1.1", r"data.max_bad_fraction = 1.1"),
        ("data.batch_size=0", r"data.batch_size = 0"),
        ("optimizer.lr=0", r"optimizer.lr = 0.0: must be above 0"),
        ("optimizer.lr=nan", r"optimizer.lr = nan"),
        ("optimizer.momentum=0.9", r"optimizer.momentum = 0.9: is for sgd and nesterov; optimizer.name is 'adam'"),
        ("optimizer.name=nesterov", r"optimizer.momentum = 0.0: must be above 0 for nesterov, such as 0.9"),
        ("run.name=a/b", r"run.name = 'a/b'"),
        ("run.name=-rf", r"run.name = '-rf': must not begin with a dash"),
        (f"run.name={101 * 'a'}", r"run.name = 'a+': must have 100 letters or fewer"),
        ("optimizer.weight_decay=inf", r"optimizer.weight_decay = inf: must be a finite number"),
        ("method.alpha=inf", r"method.alpha = 'inf': must be a finite number, or \"auto\""),
        (f"objectives.max_cycles={10**19}", r"objectives.max_cycles = '1.*': must lie between -2\^63 and 2\^63 - 1"),
        (f"cluster.cycle_deadline={400 * '9'}s", r"cluster.cycle_deadline = .*: too large a number"),
        (f"cluster.agent_memory={400 * '9'}TiB", r"cluster.agent_memory = .*: too large a number"),
        ("run.seed=-1", r"run.seed = -1"),
        ("spark.executor.cores=1", r"spark.executor.cores = 1: must be 2 or more: an agent needs two cores"),
        ("spark.speculation=true", r"spark.speculation = 'true': must be false.*--set spark.speculation"),
        ("spark.dynamicAllocation.enabled=true", r"spark.dynamicAllocation.enabled = 'true': must be false"),
        ("spark.mpca.run.name=x", r"spark.mpca.run.name = 'x': write it in its own section"),
    ],
)
def test_refused_on_the_command_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(None, text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nname = x\n", r"is not TOML: .*run.toml: .*line 2, column 8"),
        ("[run]\nname = 3\n", r"run.name = 3: must be text \(set by .*run.toml: run.name\)"),
        ("[cluster]\nagents = true\n", r"cluster.agents = True: must be a whole number"),
        ("[objectives]\nmax_time = 90\n", r"objectives.max_time = 90: must be a duration with its unit.*'90s'"),
        ("[objectvies]\nmax_time = '9s'\n", r"unknown section \[objectvies\] \(.*run.toml\): did you mean 'objectives'"),
        ("run = 3\n", r"run = 3 \(.*\): is a section; write \[run\]"),
        ("[optimizer]\nweight_decay = -inf\n", r"optimizer.weight_decay = -inf: must be a finite number"),
        (f"[optimizer]\nlr = 1{400 * '0'}\n", r"optimizer.lr = 10+: must be a number"),
        (f"[run]\nseed = 0x{9000 * 'f'}\n", r"run.seed = too many digits: must lie between"),
        (f"[run]\nseed = {9000 * '9'}\n", r"cannot be read: .*run.toml: "),
        (f"[model]\nx = {3000 * '['}{3000 * ']'}\n", r"nested too deeply: .*run.toml"),
        (f"[model]\nx = {100 * '['}{100 * ']'}\n", r"nested too deeply: .*run.toml"),
        (f"[spark]\n{'.'.join(5000 * 'x')} = 1\n", r"nested too deeply: .*run.toml"),
        (f"[model]\n{'.'.join(5000 * 'x')} = 1\n", r"nested too deeply: .*run.toml"),
        ("[method]\ngamma = 1.0\ncorrection = true\n", r"method.gamma = 1.0.*set by .*run.toml: method.gamma"),
    ],
)
def test_refused_in_a_file(file: Any, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(file(text))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_no_number_that_is_not_finite_is_a_setting(file: Any, value: float) -> None:
    """Of any section, from a file, from the command line, and for the model's and the data set's own keys."""
    method = [(f"method.{one.name}", one) for one in fields(MPCA) if isinstance(one.default, float)]
    owned = [
        (f"{name}.{one.name}", one)
        for name, cls in sections.SECTIONS.items()
        for one in fields(cls)
        if isinstance(one.default, float)
    ]
    assert len(owned) >= 10
    assert len(method) >= 5
    for key, _ in owned + method:
        section, name = key.split(".")
        for where in ((None, f"{key}={value}"), (file(f"[{section}]\n{name} = {value}\n"),)):
            with pytest.raises(ConfigError, match=f"{section}.{name} = "):
                load(*where)
    with pytest.raises(ConfigError, match=r"data.share = .*must be a finite number"):
        keywords(lambda *, share=0.5: None, "data", {"share": value})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("trackers", "tensorbord", r"track.trackers = 'tensorbord': 'tensorbord' is no tracker; did you mean 'tensorboard'\?"),
        ("trackers", "mlflow, comet", r"'comet' is no tracker; known: mlflow, tensorboard, wandb"),
        ("mlflow_uri", "https://ann:hush@there", r"'https://ann:\*\*\*@there': must not have a password .* tracker's client"),
        ("mlflow_uri", "https://ann:half@hush@there", r"'https://ann:\*\*\*@there': must not have a password"),
        ("mlflow_uri", "https://hush@there", r"'https://\*\*\*@there': must not have a password"),
        ("mlflow_uri", "https://there/?api_token=hush", r"'https://there/\?api_token=\*\*\*': must not have a password"),
    ],
)
def test_trackers_that_are_refused(key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(None, f"track.{key}={value}")
    assert "hush" not in str(caught.value)


def test_trackers_are_read_once_each() -> None:
    assert load(None, "track.trackers= mlflow,tensorboard,, mlflow").track.names == ("mlflow", "tensorboard")
    assert load().track.names == ()


def test_refused_from_spark_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"set by Spark setting spark.mpca.method.alpha"):
        load(spark={"spark.mpca.method.alpha": "7"})
    with pytest.raises(ConfigError, match=r"spark.speculation.*must be false.*set by the Spark session"):
        load(spark={"spark.speculation": "true"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: .*none.toml: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"[run]\nname = '\xff'\n")
    with pytest.raises(ConfigError, match=r"not UTF-8 text: .*: byte 14"):
        load(tmp_path / "bytes.toml")


# ---- rules about the module ----------------------------------------------------------------------------------------


def test_every_key_says_what_it_means() -> None:
    tree = ast.parse((ROOT / "mpca" / "config" / "sections.py").read_text())
    for cls in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")):
        for before, after in zip(cls.body, cls.body[1:], strict=False):
            if isinstance(before, ast.AnnAssign):
                said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                assert said, f"{cls.name}.{ast.unparse(before.target)} has no line of meaning"


def reads_environment(text: str) -> bool:
    """Whether a module reads `os.environ`; to set or take back a variable is not to read it."""
    tree = ast.parse(text)
    written = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            written.add(id(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            written.add(id(node.func.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb") and id(node) not in written:
            return True
        if isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & {"environ", "getenv"}:
            return True
    return False


def test_nothing_else_reads_the_environment() -> None:
    files = [path for path in (ROOT / "mpca").rglob("*.py") if reads_environment(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(ROOT)) for path in files] == ["mpca/environment.py"]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("import os\nos.environ['A'] = 'b'\ndel os.environ['A']\nos.environ.update(a='b')", False),
        ("import os\nx = os.environ['A']", True),
        ("import os\nx = os.environ.get('A')", True),
        ("import os\nx = os.getenv('A')", True),
        ("from os import environ", True),
        ("import os\nf(os.environ)", True),
    ],
)
def test_a_read_is_told_from_a_write(text: str, reads: bool) -> None:
    assert reads_environment(text) == reads


def test_children_get_the_environment_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPCA_TEST_ONE", "1")
    child = child_environment(MPCA_TEST_TWO="2")
    assert (child["MPCA_TEST_ONE"], child["MPCA_TEST_TWO"]) == ("1", "2")
    assert environment("MPCA_TEST_ONE") == "1"
    assert environment("MPCA_TEST_TWO", "none") == "none"


def test_sections_are_those_of_the_design() -> None:
    names = {one.name for one in fields(Resolved)} - {"origins", "redaction"}
    assert names == {"run", "model", "data", "optimizer", "method", "objectives", "cluster", "backup", "track", "spark"}


# ---- secrets -------------------------------------------------------------------------------------------------------


def test_a_secret_is_in_nothing_that_is_written_or_said(tmp_path: Path) -> None:
    secret = "hunter2"
    sets = (f"spark.ssl.keyPassword={secret}", f"spark.kerberos.keytab=/{secret}", f"spark.executorEnv.A=token {secret}")
    path = tmp_path / "config.toml"
    path.touch(mode=0o644)  # of an attempt that did not care
    resolved = load(None, *sets, "spark.ui.enabled=false")
    resolved.write(path)
    assert resolved.spark["spark.ssl.keyPassword"] == secret
    assert secret not in path.read_text() + repr(resolved) + str(resolved.to_dict())
    assert path.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(path.read_text())["spark"] == {
        "spark.ssl.keyPassword": "***",
        "spark.kerberos.keytab": "***",
        "spark.executorEnv.A": "***",
        "spark.ui.enabled": "false",
    }
    with pytest.raises(ConfigError, match=r"^spark\.my\.password = \*\*\*: must") as caught:
        load(None, f"spark.my.password=https://ann:{secret}@host")
    assert secret not in str(caught.value)


def test_a_masked_secret_is_refused_until_it_is_given_again(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    load(None, "spark.ssl.keyPassword=hunter2").write(path)
    with pytest.raises(ConfigError, match=r"spark\.ssl\.keyPassword = \*\*\*: is masked and no value: .*config\.toml"):
        load(path)
    assert load(path, "spark.ssl.keyPassword=hunter3").spark == {"spark.ssl.keyPassword": "hunter3"}
    with pytest.raises(ConfigError, match=r"spark\.a = '\*\*\*\*\*\*\*\*\*\(redacted\)': is masked"):
        load(None, "spark.a=*********(redacted)")


def test_the_rule_is_the_users_the_sessions_or_sparks() -> None:
    zebra = "spark.zebra=stripes"
    assert load(None, zebra).to_dict()["spark"] == {"spark.zebra": "stripes"}
    assert load(None, zebra, spark={"spark.redaction.regex": "zebra"}).to_dict()["spark"] == {"spark.zebra": "***"}
    own = load(None, zebra, "spark.redaction.regex=zebra", spark={"spark.redaction.regex": "horse"}).to_dict()["spark"]
    assert own == {"spark.zebra": "***", "spark.redaction.regex": "zebra"}
    with pytest.raises(ConfigError, match=r"spark\.redaction\.regex = .*: is not a regular expression"):
        load(None, "spark.redaction.regex=a|(?i)b")
