"""Whether anything of mpca was replaced: looked at before, during and after every test on a real cluster.

``tools/check_real_tests.py`` reads what a test says; here is what is true while it runs, however it was done. A `Watch`
remembers the modules and classes of mpca (every value, the code and the defaults of functions, what stands in constant
tables), and functions and classes of the standard library and of Spark that mpca has imported. `Watch.changes` compares by
identity. What it does not see: a change in another process, and one that is undone within `EVERY_S`.
"""

from __future__ import annotations

import builtins
import gc
import inspect
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

__all__ = ["EVERY_S", "Watch"]

#: Between two looks beside a test. One takes 30 ms at most.
EVERY_S = 1.0
#: Where a stand-in comes from.
_STRANGERS = ("tests", "conftest", "unittest", "mock", "_pytest", "pytest_mock", "wrapt")
_FOREIGN = sys.stdlib_module_names | {"pyspark", "py4j"}
_FREE = {"warnings", "sys", "threading"}  # pytest sets their hooks for each test
_OF_A_CLASS = {"__dict__", "__weakref__", "__doc__", "__annotations__", "__abstractmethods__", "_abc_impl"}
_OF_A_MODULE = {"__builtins__", "__warningregistry__", "__cached__", "__spec__", "__loader__", "__annotations__"}
_GLOBAL = re.compile(r"^\s+global (.+)$", re.MULTILINE)


class Watch:
    """What was there, by where it is: compared with what is there."""

    def __init__(self, prefix: str = "mpca") -> None:
        self._prefix = prefix
        self._modules: dict[str, ModuleType] = {}
        self._classes: set[type] = set()
        self._values: dict[str, dict[str, Any]] = {}  # of a module or class, by its path
        self._own: dict[str, set[str]] = {}  # names that a module itself rebinds
        self._parts: dict[tuple[str, str], Any] = {}  # of functions and tables
        self._found: dict[str, None] = {}  # in order
        self._lock = threading.Lock()
        self.look()

    def look(self) -> None:
        """Note what differs from what is known, and take in what is new."""
        with self._lock:
            self._others: dict[str, ModuleType] = {"builtins": builtins}  # of this look
            for name, module in sys.modules.copy().items():  # list() of the items may meet another thread's import
                if self._of_ours(name) and isinstance(module, ModuleType) and not _half(module):
                    self._module(name, module)
            for name, module in self._others.items():
                self._foreign(name, module)
            for name in self._modules.keys() - sys.modules.keys():
                self._note(f"sys.modules has no {name} any more")

    def changes(self) -> list[str]:
        """What was seen to be replaced since it was asked last, one line each; living objects are looked at too."""
        self.look()
        with self._lock:
            for thing in [one for one in gc.get_objects() if type(one) in self._classes]:
                self._object(thing)
            found, self._found = list(self._found), {}
            return found

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Look again and again, in a thread, until left."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(EVERY_S):
                self.look()

        watcher = threading.Thread(target=watch, name="tests-unpatched", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    # ---- inside ----

    def _of_ours(self, module: str) -> bool:
        return module == self._prefix or module.startswith(self._prefix + ".")

    def _note(self, what: str) -> None:
        self._found[what] = None

    def _module(self, name: str, module: ModuleType) -> None:
        if self._modules.setdefault(name, module) is not module:
            self._note(f"sys.modules[{name!r}] is another module")
            return
        if type(module) is not ModuleType:
            self._note(f"{name} is a {type(module).__qualname__}")
        if name not in self._own:
            path = getattr(module, "__file__", None)
            text = Path(path).read_text(encoding="utf-8") if path else ""
            self._own[name] = {word.strip() for line in _GLOBAL.findall(text) for word in line.split(",")}
        skip = _OF_A_MODULE | self._own[name]
        now = {key: value for key, value in list(vars(module).items()) if key not in skip}
        for key in [
            key for key, value in now.items() if isinstance(value, ModuleType) and sys.modules.get(f"{name}.{key}") is value
        ]:
            del now[key]  # the import system sets these
        self._compare(name, now)
        for value in now.values():
            if isinstance(value, ModuleType):
                self._others[value.__name__] = value
            elif isinstance(value, type) and value.__module__ == name:
                self._class(f"{name}.{value.__qualname__}", value)

    def _class(self, path: str, cls: type) -> None:
        self._classes.add(cls)
        now = {key: value for key, value in list(vars(cls).items()) if key not in _OF_A_CLASS}
        self._compare(path, {**now, "(bases)": cls.__bases__})
        for value in now.values():
            if isinstance(value, type) and value.__qualname__.startswith(cls.__qualname__ + "."):
                self._class(f"{path}.{value.__name__}", value)

    def _foreign(self, name: str, module: ModuleType) -> None:
        """Of others' modules only functions and classes count, and none that are new."""
        top = name.partition(".")[0]
        if top not in _FOREIGN or top in _FREE:
            return
        now = {
            key: value
            for key, value in list(vars(module).items())
            if isinstance(value, (FunctionType, BuiltinFunctionType, type)) or key in self._values.get(name, ())
        }
        self._compare(name, now, whole=False)
        for key, value in now.items():
            if isinstance(value, type) and value.__module__ == name and key == value.__name__:
                functions = {key: one for key, one in list(vars(value).items()) if isinstance(one, FunctionType)}
                self._compare(f"{name}.{key}", functions, whole=False)

    def _compare(self, path: str, now: dict[str, Any], whole: bool = True) -> None:
        known = self._values.get(path)
        if known is None:
            known = self._values[path] = now
            for key, value in now.items() if whole else ():
                if _origin(value).partition(".")[0] in _STRANGERS:
                    self._note(f"{path}.{key} comes from {_origin(value)}")
        for key in known.keys() | now.keys() if whole else known.keys():
            if key not in now:
                self._note(f"{path}.{key} is gone")
            elif key not in known:
                self._note(f"{path}.{key} is new")
            elif not whole and _of_a_library(now[key]):
                known[key] = now[key]  # torch and typing_extensions do that when they are imported
            elif not _same(known[key], now[key]):
                self._note(f"{path}.{key} was replaced")
            else:
                self._inside(path, key, now[key])

    def _inside(self, path: str, key: str, value: Any) -> None:
        """Parts of what is still the same object."""
        parts = _parts(key, value)
        known = self._parts.setdefault((path, key), parts)
        if parts is not known and not (
            len(parts) == len(known) and all(_same(one, other) for one, other in zip(parts, known, strict=True))
        ):
            self._note(f"{path}.{key} was changed inside")

    def _object(self, thing: Any) -> None:
        cls = type(thing)
        try:
            own = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            return
        fields = getattr(cls, "__dataclass_fields__", ())  # a function may be a field's default
        for key in own.keys() - set(fields):
            if isinstance(inspect.getattr_static(cls, key, None), (FunctionType, staticmethod, classmethod)):
                self._note(f"an object of {cls.__module__}.{cls.__qualname__} has its own {key}")


def _half(module: ModuleType) -> bool:
    """Whether it is being imported in this moment."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _same(one: Any, other: Any) -> bool:
    if type(one) is tuple and type(other) is tuple:  # made anew at each look
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return one is other


def _origin(value: Any) -> str:
    for inner in ("__func__", "func", "__wrapped__"):
        if not isinstance(value, (type, FunctionType)) and (found := inspect.getattr_static(value, inner, None)) is not None:
            value = found if callable(found) else value
    module = value.__module__ if isinstance(value, (type, FunctionType)) else type(value).__module__
    return module if isinstance(module, str) else ""


def _of_a_library(value: Any) -> bool:
    """Whether it comes from an installed package, which no stand-in of a test does."""
    top = _origin(value).partition(".")[0]
    module = sys.modules.get(top)
    if module is None or top in _STRANGERS or top in _FOREIGN or top == "mpca":
        return False
    return "site-packages" in (getattr(module, "__file__", None) or "")


def _parts(key: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType):
        named = value.__kwdefaults__ or {}
        cells = tuple(cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
        return (value.__code__, *(value.__defaults__ or ()), *named.keys(), *named.values(), *cells)
    if key.lstrip("_").isupper() and isinstance(value, dict):
        return (*value.keys(), *value.values())
    if key.lstrip("_").isupper() and isinstance(value, (list, set)):
        return tuple(value)
    return ()


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
