"""What of a configuration only its method can refuse."""

from __future__ import annotations

import pytest

from mpca.api.job import resolve
from mpca.errors import ConfigError
from mpca.methods import from_dict
from mpca.methods.table import METHODS

CODECS = ("bf16", "int8", "int4")
NAMES = [name for name, method in METHODS.items() if not method.simulated]


@pytest.mark.parametrize("name", NAMES)
def test_a_codec_goes_with_methods_whose_driver_sums_and_broadcasts(name: str) -> None:
    method = from_dict({"name": name})
    assert resolve(None, (f"method.name={name}", "cluster.codec=none")).cluster.codec == "none"
    for codec in CODECS:
        sets = (f"method.name={name}", f"cluster.codec={codec}")
        if method.exchanges and not method.asks:
            assert resolve(None, sets).cluster.codec == codec
            continue
        words = rf"^cluster\.codec = '{codec}'.*: needs a method whose driver sums and broadcasts, and {name} is none; set"
        with pytest.raises(ConfigError, match=words + r' cluster\.codec = "none"$'):
            resolve(None, sets)


def test_of_those_some_are_refused_and_some_are_not() -> None:
    methods = [from_dict({"name": name}) for name in NAMES]
    assert {method.exchanges and not method.asks for method in methods} == {True, False}
    assert any(method.asks for method in methods)
    assert not all(method.exchanges for method in methods)
