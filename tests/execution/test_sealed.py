"""Arguments that are pickled once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gpgc_dask.execution.compute import Sealed


class Counted:
    """Counts how often it is pickled."""

    def __init__(self):
        self.times = 0
        self.numbers = np.arange(5)

    def __getstate__(self):
        self.times += 1
        return {"times": 0, "numbers": self.numbers}


def test_a_value_is_pickled_once_and_only_unpickled_on_use(monkeypatch):
    value = Counted()
    sealed = Sealed(value)
    assert sealed.value is value
    first, second = pickle.dumps(sealed), pickle.dumps(sealed)
    assert first == second
    assert value.times == 1
    passed = pickle.loads(first)
    with monkeypatch.context() as patch:
        patch.setattr(Counted, "__setstate__", pytest.fail, raising=False)
        assert pickle.dumps(passed) == first
    np.testing.assert_array_equal(passed.value.numbers, np.arange(5))
    assert passed.value is passed.value
    with pytest.raises(AttributeError, match="other"):
        _ = passed.other
