"""No engine code makes objects, or runs code, of bytes that came from a socket, a file or HDFS, but where a reason stands here.

The source is read. A name counts as used wherever it stands, so an alias (``read = pickle.loads``) or a base class is seen too.
What the engine's own messages are made of: `mpca/wire/codec.py`; what agents return: `mpca/agent/returned.py`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Modules whose names all are refused, but for those that only write or describe.
MODULES = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve", "yaml", "ruamel"),
    *("pyspark.serializers", "pyspark.cloudpickle", "multiprocessing.connection", "torch.multiprocessing", "torch.package"),
    *("torch.jit", "torch.hub"),
}
HARMLESS = {"dump", "dumps", "Pickler", "PicklingError", "UnpicklingError", "register_pickle_by_value", "wait"}
BUILT_IN = {"eval", "exec", "compile", "__import__"}
NAMES = {
    *BUILT_IN,
    *("runpy.run_path", "runpy.run_module", "torch.load", "torch.serialization.load"),
    *("torch.export.load", "numpy.load", "numpy.lib.format.read_array", "pandas.read_pickle", "numpy.lib.npyio.NpzFile"),
    *(
        "multiprocessing.Pipe",
        "multiprocessing.Queue",
        "multiprocessing.SimpleQueue",
        "multiprocessing.Pool",
        "multiprocessing.Manager",
    ),
    *("concurrent.futures.ProcessPoolExecutor", "types.CodeType", "types.FunctionType"),
}
#: Methods, of whatever object.
METHODS = {"pickleFile", "read_pickle", "load_module", "exec_module"}
#: Arguments that open a door; with any value but a plain False.
ARGUMENTS = {"allow_pickle", "trust_remote_code"}
DYNAMIC = {"importlib.import_module", "importlib.util.spec_from_file_location"}

OWN_FUNCTION = "the user's own function: cloudpickled by the driver, brought by a task on Spark's channel (docs: SECURITY.md)"
OWN_CHILD = "a socket pair with a process that this one started, of the same user and the same code; it has no name or port"
ALLOWED = {
    ("mpca/agent/main.py", "cloudpickle.loads"): OWN_FUNCTION,
    (
        "mpca/agent/evaluator.py",
        "cloudpickle.loads",
    ): "the user's own evaluation, by the stdin of the driver's child",
    ("mpca/api/shipping.py", "exec"): "the user's own script; its text came as the argument of a train function",
    ("mpca/api/shipping.py", "compile"): "as exec, beside it",
    ("mpca/pickling.py", "types.CodeType"): "the key under which cloudpickle keeps how code is packed",
    ("mpca/pickling.py", "cloudpickle.Pickler.dispatch_table"): "as below, to read how code is packed",
    ("mpca/pickling.py", "cloudpickle.Pickler.dispatch_table.new_child"): "how code is packed; nothing is unpacked",
    ("mpca/data/cifar10_files.py", "pickle.Unpickler"): "refuses every name but its own stand-ins for numpy's",
    ("mpca/data/child.py", "multiprocessing.connection.Connection"): OWN_CHILD,
    ("mpca/cli/bench/cases/sim.py", "concurrent.futures.ProcessPoolExecutor"): OWN_CHILD,
    ("mpca/ml/saving.py", "pickle.loads"): "a pipeline stage's code, within `trust_pickles` alone",
    ("mpca/ml/predict.py", "pickle.loads"): "the user's own model, in the closure of a UDF, which Spark has unpickled before",
}
#: Java: Spark's own serializer calls readExternal and readObject of what its authenticated channel brought.
JAVA = re.compile(r"\b(ObjectInputStream|readObject|readUnshared|XMLDecoder|XStream|SnakeYaml|deserialize)\b")
JAVA_ALLOWED = {
    ("YieldContext.java", "readObject"): "a block that Spark itself reads, by the serializer that reads all of its blocks",
    ("FakeWire.java", "deserialize"): "the bench's own tasks, in the driver's JVM; a run has none of it",
}


def _aliases(tree: ast.AST) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.split(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            found.update({one.asname or one.name: f"{node.module}.{one.name}" for one in node.names})
    return found


def _path(node: ast.AST, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        base = _path(node.value, aliases)
        return f"{base}.{node.attr}" if base else ""
    if not isinstance(node, ast.Name):
        return ""
    return aliases.get(node.id, node.id if node.id in BUILT_IN else "")


def _refused(path: str) -> bool:
    """Whether code that has this dotted name may unpickle or run what it was given."""
    if path in NAMES:
        return True
    module = next((one for one in MODULES if path == one or path.startswith(f"{one}.")), None)
    return module is not None and (path == module or path[len(module) + 1 :] not in HARMLESS)


def uses(source: str) -> Iterator[tuple[str, int]]:
    """Dotted name and line of each such use."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    safe = set()  # torch.load(..., weights_only=True), written out: it reads tensors and plain containers alone
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            words = {one.arg: one.value for one in node.keywords}
            weights = words.get("weights_only")
            if _path(node.func, aliases) == "torch.load" and isinstance(weights, ast.Constant) and weights.value is True:
                safe.add(id(node.func))
            for name in ARGUMENTS & words.keys():
                value = words[name]
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield f"{name}=", node.lineno
            if _path(node.func, aliases) in DYNAMIC | {"__import__"}:
                for one in node.args:
                    if isinstance(one, ast.Constant) and isinstance(one.value, str) and _refused(one.value):
                        yield one.value, node.lineno
    for node in ast.walk(tree):
        if id(node) in inner or id(node) in safe or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.attr, node.lineno
        path = _path(node, aliases)
        if _refused(path):
            yield path, node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (("*", node.lineno) for one in node.names if one.name == "*" and node.module in MODULES)


def found(root: Path) -> dict[tuple[str, str], list[int]]:
    """Each use in `mpca`, by file and name, with its lines; annotations count too."""
    every: dict[tuple[str, str], list[int]] = {}
    for path in sorted((root / "mpca").rglob("*.py")):
        for name, line in uses(path.read_text(encoding="utf-8")):
            every.setdefault((str(path.relative_to(root)), name), []).append(line)
    return every


def test_nothing_is_unpickled_but_where_a_reason_stands() -> None:
    new = {key: lines for key, lines in found(ROOT).items() if key not in ALLOWED}
    assert not new, "make it data (mpca/agent/returned.py, msgpack, safetensors, JSON), or give the reason in ALLOWED"


def test_each_reason_is_still_needed() -> None:
    assert set(ALLOWED) <= set(found(ROOT))


def test_java_reads_no_objects_but_spark_s_own() -> None:
    seen = {
        (path.name, word)
        for path in (ROOT / "jvm" / "src").glob("*/java/**/*.java")
        if "test" not in path.relative_to(ROOT / "jvm" / "src").parts[0]
        for word in JAVA.findall(re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    }
    assert seen == set(JAVA_ALLOWED)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import pickle\npickle.loads(x)", ["pickle.loads"]),
        ("import pickle as p\nread = p.load", ["pickle.load"]),
        ("from pickle import loads as read\nread(x)", ["pickle.loads"]),
        ("import pickle\nclass A(pickle.Unpickler): ...", ["pickle.Unpickler"]),
        ("import pickle\ngetattr(pickle, 'loads')(x)", ["pickle"]),
        ("from pickle import *", ["*"]),
        ("import pyspark.cloudpickle\npyspark.cloudpickle.loads(x)", ["pyspark.cloudpickle.loads"]),
        ("from importlib import import_module\nimport_module('pickle').loads(x)", ["pickle"]),
        ("import torch\ntorch.load(x)", ["torch.load"]),
        ("import torch\ntorch.load(x, weights_only=flag)", ["torch.load"]),
        ("import torch\ntorch.load(x, weights_only=True)", []),
        ("import numpy as np\nnp.load(x)", ["numpy.load"]),
        ("import numpy as np\nnp.memmap(x, allow_pickle=maybe)", ["allow_pickle="]),
        ("import yaml\nyaml.safe_load(x)", ["yaml.safe_load"]),
        ("eval(x)\nf = exec", ["eval", "exec"]),
        ("model.eval()\npickle = 1\npickle.loads", []),
        ("spark.sparkContext.pickleFile(x)", ["pickleFile"]),
        ("from multiprocessing import Pipe\nPipe()", ["multiprocessing.Pipe"]),
        ("import pickle\npickle.dumps(x)\ntry: ...\nexcept pickle.PicklingError: ...", []),
        ("import json, safetensors.torch\njson.loads(x), safetensors.torch.load(x)", []),
    ],
)
def test_the_rule_sees(source: str, names: list[str]) -> None:
    assert Counter(name for name, _ in uses(source)) == Counter(names)
