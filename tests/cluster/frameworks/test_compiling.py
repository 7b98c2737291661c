"""What compiling costs: with a compiler, without one, and as arithmetic."""

import pytest
import torch

from course.cluster.frameworks import compiling
from course.cluster.frameworks.compiling import Calls


def test_compiling_has_paid_when_it_has_saved_what_it_took():
    assert Calls(eager_s=3.0, first_s=13.0, later_s=1.0).paid_after == 5.0
    assert Calls(eager_s=1.0, first_s=13.0, later_s=1.0).paid_after == float("inf")


def test_calls_are_said_in_a_sentence():
    said = "as it is 3000.0 ms, the first compiled call 13 s, later ones 1.5 ms"
    assert str(Calls(eager_s=3.0, first_s=13.0, later_s=0.0015)) == said


def test_gelu_is_near_that_of_torch():
    x = torch.linspace(-4, 4, 100, dtype=torch.float64)
    assert (compiling.gelu(x) - torch.nn.functional.gelu(x)).abs().max() < 1e-3


def test_without_a_compiler_one_sentence_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "has no compiler for it" in compiling.available()
    with pytest.raises(RuntimeError, match="has no compiler for it"):
        compiling.timed_calls(abs, 1)


@pytest.mark.skipif(bool(compiling.available()), reason="no C++ compiler here")
def test_the_first_call_is_the_one_that_compiles():
    times = compiling.timed_calls(lambda x: (x + 1) * 2, torch.ones(1000), calls=3)
    assert times.first_s > 10 * times.later_s
