"""Whatever a check or an answer changes in the process is as before afterwards."""

import builtins
import math
import os
import random
import sys
import warnings

import numpy
import pytest
import torch

from course.classroom.process_state import kept


def change_grad():
    torch.set_grad_enabled(False)


def replace_equal():
    torch.equal = lambda a, b: True


def replace_method():
    torch.Tensor.sum = None


def remove_method():
    del torch.nn.functional.relu


def replace_builtin():
    builtins.sum = math.prod


def leave(folder="below"):
    os.mkdir(folder)
    os.chdir(folder)
    os.rmdir(os.getcwd())


CHANGES = {
    "dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "device": (lambda: torch.set_default_device("meta"), lambda: torch.empty(1).device),
    "grad": (change_grad, torch.is_grad_enabled),
    "threads": (lambda: torch.set_num_threads(7), torch.get_num_threads),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True),
        torch.are_deterministic_algorithms_enabled,
    ),
    "function": (replace_equal, lambda: torch.equal),
    "method": (replace_method, lambda: torch.Tensor.sum),
    "removed": (remove_method, lambda: torch.nn.functional.relu),
    "builtin": (replace_builtin, lambda: sum),
    "torch seed": (lambda: torch.rand(3), lambda: torch.get_rng_state().tolist()),
    "numpy seed": (lambda: numpy.random.rand(3), lambda: repr(numpy.random.get_state())),
    "seed": (random.random, random.getstate),
    "numpy errors": (lambda: numpy.seterr(all="raise"), numpy.geterr),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "removed folder": (leave, os.getcwd),
    "variable": (lambda: os.environ.update(HOME="/nowhere"), lambda: os.environ["HOME"]),
    "variables": (os.environ.clear, lambda: dict(os.environ)),
    "path": (sys.path.clear, lambda: list(sys.path)),
    "recursion": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "switches": (lambda: sys.setswitchinterval(1), sys.getswitchinterval),
    "output": (lambda: setattr(sys, "stdout", None), lambda: sys.stdout),
    "warnings": (lambda: warnings.simplefilter("ignore"), lambda: list(warnings.filters)),
}


@pytest.mark.parametrize(("change", "look"), CHANGES.values(), ids=CHANGES)
def test_what_a_call_changed_is_put_back(change, look, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = look()
    for error in (None, KeyError):
        try:
            with kept():
                change()
                if error:
                    raise error
        except KeyError:
            pass
        assert look() == before


def test_what_was_imported_stays(monkeypatch):
    with kept():
        monkeypatch.setattr(torch, "imported_just_now", print, raising=False)
    assert torch.imported_just_now is print


def test_a_folder_that_was_removed_before_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir(tmp_path / "gone")
    with kept():
        pass


def test_output_is_bounded(capsys):
    with kept():
        for _ in range(1000):
            print("x" * 1000)
    assert len(capsys.readouterr().out) < 110_000
