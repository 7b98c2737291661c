"""What a checkpoint is, and whether it still is that."""

import json

import pytest

from course.cluster.failover.manifest import Manifest, OtherFormat, by_rank
from course.parallel.whole_files import digest_of

PARTS = {"model": ["weight float32 [3, 2]", "bias float32 [3]"], "order": ["by 4"]}


@pytest.fixture
def made(tmp_path):
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_bytes(name.encode() * 100)
    files = {name: digest_of(tmp_path / name) for name in ("a.pt", "b.pt")}
    manifest = Manifest(40, 2, by_rank([PARTS, PARTS]), files)
    manifest.write(tmp_path)
    return manifest, tmp_path


def test_what_is_written_is_read(made):
    manifest, path = made
    assert Manifest.read(path) == manifest
    assert manifest.damage(path, ["a.pt", "b.pt"]) == manifest.difference(path, PARTS, 1) == ""
    assert not list(path.glob("*.unfinished"))


def test_damage_is_told_in_a_sentence(made):
    manifest, path = made
    (path / "a.pt").write_bytes(b"a.pt" * 99)
    assert manifest.damage(path, ["b.pt"]) == ""
    said = f"{path}/a.pt has 396 bytes, and 400 were written"
    assert manifest.damage(path, ["b.pt", "a.pt"]) == said
    (path / "a.pt").write_bytes(b"a.pT" * 100)
    assert manifest.damage(path, ["a.pt"]) == f"{path}/a.pt has other bytes than were written"
    (path / "a.pt").unlink()
    assert manifest.damage(path, ["a.pt"]) == f"{path} lacks a.pt"


def test_another_training_is_told_by_what_differs_first(made):
    manifest, path = made
    for parts, said in (
        ({**PARTS, "order": ["by 5"]}, "has in order by 4, where this training has by 5"),
        ({**PARTS, "model": PARTS["model"][:1]}, "in model bias float32 [3], where this training "
                                                 "has nothing"),
        ({**PARTS, "model": [*PARTS["model"], "x"]}, "in model nothing, where this training has x"),
        ({"model": []}, "has the parts model, order, and this training model"),
    ):  # fmt: skip
        assert said in manifest.difference(path, parts, 1)


def test_ranks_may_have_different_parts(made):
    _, path = made
    other = {**PARTS, "order": ["stage 1"]}
    manifest = Manifest(40, 3, by_rank([PARTS, other, PARTS]), {})
    assert manifest.parts["order"] == {"0": ["by 4"], "1": ["stage 1"]}
    assert not any(
        manifest.difference(path, p, r) for r, p in enumerate([PARTS, other, PARTS, PARTS])
    )
    assert "has in order stage 1, where" in manifest.difference(path, PARTS, 1)


def test_none_one_cut_short_and_one_of_another_format(made):
    _, path = made
    file = path / "manifest.json"
    text = file.read_text()
    file.write_text(json.dumps(json.loads(text) | {"format": 2, "new": 1}))
    with pytest.raises(OtherFormat, match="is of format 2, and what reads it of 1"):
        Manifest.read(path)
    for cut in (text[:-9], "", "[]", '{"format": 1}', text.replace("bias", "bias2")):
        file.write_text(cut)
        with pytest.raises(
            ValueError, match="has a manifest.json that is cut short or was changed"
        ):
            Manifest.read(path)
    file.unlink()
    with pytest.raises(ValueError, match="has no manifest.json"):
        Manifest.read(path)
