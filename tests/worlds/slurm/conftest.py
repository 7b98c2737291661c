import pytest


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Whether the ranks of a program are in their function: each leaves a file."""
    monkeypatch.setenv("BEGUN", str(tmp_path))
    return lambda: len(list(tmp_path.iterdir())) == 2
