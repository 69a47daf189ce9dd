"""Ways to replace a part of mpca in Python, for the tests of what forbids it.

Each is the source of a function ``way(monkeypatch)``, with the imports before it, and which of the two must notice:
the tool that reads sources, the watch that looks while it runs. Run it only on a copy: these really replace things.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COPY", "WAYS", "Way"]

#: Of the package `mpca.driver` that the ways replace things in, for a copy that nobody uses.
COPY = """
import time

LIMIT = 3
TABLE = {"a": 1}

def freeze(cycle=1, *, shard=2):
    return cycle, shard

class Cycle:
    LIMIT = 1

    def handle(self):
        return freeze()
"""

_FROM = "from mpca.driver import cycle\n"


class Way(NamedTuple):
    before: str
    body: str
    read: bool = True  # the tool notices
    seen: bool = True  # the watch notices

    @property
    def source(self) -> str:
        lines = "".join(f"    {line}\n" for line in self.body.split("\n"))
        return f"{self.before}\ndef fake(*_, **__):\n    return None\n\ndef way(monkeypatch):\n{lines}"


WAYS: dict[str, Way] = {
    # ---- by assignment
    "a module's value": Way(_FROM, "cycle.LIMIT = 9"),
    "a module's value in one expression": Way("import mpca.driver.cycle", "mpca.driver.cycle.LIMIT = 9"),
    "a class's method": Way(_FROM, "cycle.Cycle.handle = fake"),
    "augmented": Way(_FROM, "cycle.LIMIT += 9"),
    "annotated": Way(_FROM, "cycle.LIMIT: int = 9"),
    "in a tuple": Way(_FROM, "cycle.LIMIT, other = 9, 1"),
    "starred": Way(_FROM, "first, *cycle.LIMIT = 9, 1, 2"),
    "by a loop": Way(_FROM, "for cycle.LIMIT in (9,):\n    pass"),
    "by with": Way(f"import contextlib\n{_FROM}", "with contextlib.nullcontext(9) as cycle.LIMIT:\n    pass"),
    "deleted": Way(_FROM, "del cycle.Cycle.handle"),
    "another name": Way(_FROM, "known = cycle\nknown.LIMIT = 9"),
    "another name for a class": Way("from mpca.driver.cycle import Cycle as Known", "(Other := Known).handle = fake"),
    "another name, in a list": Way(_FROM, "for known in [cycle.Cycle]:\n    known.handle = fake"),
    "another name, of this module": Way(f"{_FROM}known = cycle", "known.LIMIT = 9"),
    "the class of an object": Way("from mpca.driver.cycle import Cycle", "type(Cycle()).handle = fake"),
    "the module of a class": Way("import inspect\n" + _FROM, "inspect.getmodule(cycle.Cycle).LIMIT = 9"),
    "an object's method": Way("from mpca.driver.cycle import Cycle", "one = Cycle()\none.handle = fake\nreturn one"),
    "an object's method, bound": Way(
        "import types\nfrom mpca.driver.cycle import Cycle",
        "one = Cycle()\none.handle = types.MethodType(fake, one)\nreturn one",
    ),
    "an object's class": Way(
        "from mpca.driver.cycle import Cycle", "one = Cycle()\none.__class__ = type('Fake', (Cycle,), {})", seen=False
    ),
    "bases": Way(_FROM, "class Base:\n    pass\nclass Other(Base):\n    pass\ncycle.Cycle.more = Base"),
    "what it imported": Way(_FROM, "cycle.time.sleep = fake"),
    "what it will import": Way("import time\n" + _FROM, "time.sleep = fake", read=False),
    "built in": Way("import builtins\n" + _FROM, "builtins.open = fake"),
    # ---- by functions of Python
    "setattr": Way(_FROM, "setattr(cycle, 'LIMIT', 9)"),
    "setattr by another name": Way(_FROM, "put = setattr\nput(cycle, 'LIMIT', 9)"),
    "setattr in a partial": Way(f"import functools\n{_FROM}", "functools.partial(setattr, cycle, 'LIMIT')(9)"),
    "delattr": Way(_FROM, "delattr(cycle.Cycle, 'handle')"),
    "type.__setattr__": Way(_FROM, "type.__setattr__(cycle.Cycle, 'handle', fake)"),
    "a partial method": Way(f"import functools\n{_FROM}", "cycle.Cycle.handle = functools.partialmethod(fake, 1)"),
    "vars": Way(_FROM, "vars(cycle)['LIMIT'] = 9"),
    "__dict__": Way(_FROM, "cycle.__dict__.update(LIMIT=9)"),
    "a function's globals": Way("from mpca.driver.cycle import freeze", "freeze.__globals__['LIMIT'] = 9"),
    "a function's code": Way("from mpca.driver.cycle import freeze", "freeze.__code__ = fake.__code__"),
    "a function's defaults": Way("from mpca.driver.cycle import freeze", "freeze.__defaults__ = (5,)"),
    "a function's named defaults": Way("from mpca.driver.cycle import freeze", "freeze.__kwdefaults__ = {'shard': 5}"),
    "a class behind its proxy": Way(f"import gc\n{_FROM}", "gc.get_referents(cycle.Cycle.__dict__)[0]['handle'] = fake"),
    "exec": Way(_FROM, "exec('cycle.LIMIT = 9')"),
    "a table's entry": Way("from mpca.driver.cycle import TABLE", "TABLE['a'] = 9"),
    "a table's entry by its method": Way(_FROM, "cycle.TABLE.update(a=9)"),
    "a table's entry by another name": Way(_FROM, "table = cycle.TABLE\ntable.pop('a')"),
    "a table's entry by operator": Way(f"import operator\n{_FROM}", "operator.setitem(cycle.TABLE, 'a', 9)"),
    "through C": Way(
        f"import ctypes\n{_FROM}",
        "put = ctypes.pythonapi.PyObject_SetAttrString\nput(ctypes.py_object(cycle), b'LIMIT', ctypes.py_object(9))",
        read=False,
    ),
    # ---- by the import system
    "importlib": Way("import importlib", "importlib.import_module('mpca.driver.cycle').LIMIT = 9"),
    "importlib's function": Way("from importlib import import_module as load", "load('mpca.driver.cycle').LIMIT = 9"),
    "__import__": Way("", "__import__('mpca.driver.cycle').driver.cycle.LIMIT = 9"),
    "sys.modules' value": Way(f"import sys\n{_FROM}", "sys.modules['mpca.driver.cycle'].LIMIT = 9"),
    "sys.modules": Way(f"import sys, types\n{_FROM}", "sys.modules['mpca.driver.cycle'] = types.ModuleType('cycle')"),
    "sys.modules by another name": Way(
        f"import types\nfrom sys import modules\n{_FROM}", "modules['mpca.driver.cycle'] = types.ModuleType('cycle')"
    ),
    "a module's class": Way(
        f"import types\n{_FROM}", "class Fake(types.ModuleType):\n    pass\nFake.__module__ = 'tests.x'\ncycle.__class__ = Fake"
    ),
    # ---- by pytest and mocks
    "monkeypatch.setattr": Way(_FROM, "monkeypatch.setattr(cycle, 'LIMIT', 9)"),
    "monkeypatch.setattr by text": Way(_FROM, "monkeypatch.setattr('mpca.driver.cycle.LIMIT', 9)"),
    "monkeypatch.setattr by another name": Way(_FROM, "put = monkeypatch.setattr\nput(cycle, 'LIMIT', 9)"),
    "monkeypatch by another name": Way(_FROM, "patch = monkeypatch\npatch.setattr(cycle, 'LIMIT', 9)"),
    "monkeypatch found by text": Way(_FROM, "getattr(monkeypatch, 'setattr')(cycle, 'LIMIT', 9)"),
    "monkeypatch found by halves": Way(_FROM, "getattr(monkeypatch, 'set' + 'attr')(cycle, 'LIMIT', 9)", read=False),
    "monkeypatch.setitem": Way(_FROM, "monkeypatch.setitem(cycle.TABLE, 'a', 9)"),
    "monkeypatch.setitem of __dict__": Way(_FROM, "monkeypatch.setitem(cycle.__dict__, 'LIMIT', 9)"),
    "monkeypatch.setitem of sys.modules": Way(
        f"import sys, types\n{_FROM}", "monkeypatch.setitem(sys.modules, 'mpca.driver.cycle', types.ModuleType('cycle'))"
    ),
    "monkeypatch.delattr": Way(_FROM, "monkeypatch.delattr(cycle.Cycle, 'handle')"),
    "monkeypatch.delitem": Way(_FROM, "monkeypatch.delitem(cycle.TABLE, 'a')"),
    "a patcher of one's own": Way(f"import pytest\n{_FROM}", "pytest.MonkeyPatch().setattr(cycle, 'LIMIT', 9)"),
    "mock.patch": Way("from unittest import mock", "mock.patch('mpca.driver.cycle.LIMIT', 9).start()"),
    "mock.patch by another name": Way("from unittest.mock import patch as put", "put('mpca.driver.cycle.LIMIT', 9).start()"),
    "mock by another name": Way("import unittest.mock as double", "double.patch('mpca.driver.cycle.LIMIT', 9).start()"),
    "mock.patch.dict": Way(f"from unittest import mock\n{_FROM}", "mock.patch.dict(cycle.TABLE, a=9).start()"),
    "mock of an object": Way(
        f"from unittest.mock import MagicMock\n{_FROM}", "one = cycle.Cycle()\none.handle = MagicMock()\nreturn one"
    ),
}
