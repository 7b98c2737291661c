import hashlib
import http.server
import io
import lzma
import subprocess
import sys
import tarfile
import threading
import zipfile

import pooch
import pytest

from course.learning.images import staging

FILES = {f"s{k}/{n}.pgm": f"picture {k} {n}".encode() * 500 for k in (1, 2) for n in (1, 2, 3)}


def tar_of(files, links=()):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, target in links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


WHOLE = tar_of({f"faces/orl/{name}": content for name, content in FILES.items()})


class Answers(http.server.BaseHTTPRequestHandler):
    """Sends what the server has left for an address: the last answer again and again."""

    def do_GET(self):
        answers = self.server.answers[self.path]
        self.server.asked.append(self.path)
        status, body, promised, headers = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in {"Content-Length": promised, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def answer(body, status=200, promised=None, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, body, promised or len(body), named


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as loopback:
        loopback.answers, loopback.asked = {}, []
        thread = threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield loopback
        loopback.shutdown()
        thread.join()


@pytest.fixture
def small(server, monkeypatch):
    """Makes «small» a data set of six files whose archive is sent as told."""

    def at(*answers, packed=WHOLE, files=6, mirror=None):
        server.answers = {"/a": list(answers), "/b": [mirror]}
        base = f"http://127.0.0.1:{server.server_port}"
        addresses = (f"{base}/a", f"{base}/b")[: 2 if mirror else 1]
        checksum = f"sha256:{hashlib.sha256(packed).hexdigest()}"
        source = staging.Source(addresses, checksum, "s1/1.pgm", "s*/*.pgm", files)
        monkeypatch.setitem(staging.SOURCES, "small", source)

    return at


def held(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "packed",
    [
        WHOLE,
        zip_of(FILES),
        zip_of({f"att/{name}": content for name, content in FILES.items()}),
        tar_of({**{f"./{name}": content for name, content in FILES.items()}, "__X/._1.pgm": b""}),
    ],
    ids=["tar", "zip at the top", "zip", "tar at the top"],
)
def test_the_folder_of_the_data_set_is_found_in_its_archive(small, tmp_path, packed):
    small(answer(packed), packed=packed)
    place = staging.fetch("small", tmp_path / "new" / "data")
    assert place == tmp_path / "new" / "data" / "small"
    found = held(place)
    assert {name: found[name] for name in FILES} == FILES
    assert [path.name for path in place.parent.iterdir()] == ["small"]


def test_what_is_there_is_not_fetched_again(small, server, tmp_path):
    small(answer(WHOLE))
    assert staging.fetch("small", tmp_path) == staging.fetch("small", tmp_path)
    assert server.asked == ["/a"]


@pytest.mark.parametrize(
    "first",
    [
        answer(WHOLE[: len(WHOLE) // 2], promised=len(WHOLE)),
        answer(WHOLE[: len(WHOLE) // 2]),
        answer(WHOLE[:-1] + b"?"),
        answer(b"", promised=len(WHOLE)),
        answer(b"try later", status=503),
    ],
    ids=["cut off", "half", "changed", "nothing", "503"],
)
def test_a_download_that_breaks_is_tried_again(small, server, tmp_path, first):
    small(first, answer(WHOLE))
    assert held(staging.fetch("small", tmp_path)) == FILES
    assert server.asked == ["/a", "/a"]


def test_another_address_is_asked_when_one_fails(small, server, tmp_path):
    small(answer(b"gone", status=404), mirror=answer(WHOLE))
    assert held(staging.fetch("small", tmp_path)) == FILES
    assert server.asked == ["/a", "/b"]


def test_bytes_are_kept_as_sent_though_the_server_says_they_are_encoded(small, server, tmp_path):
    """Apache calls a .tgz «tar, encoded by x-gzip»: pooch 1.9 decodes it, the checksum fails."""
    small(answer(WHOLE, Content_Encoding="x-gzip"))
    with pytest.raises(ValueError, match="does not match"):
        address, checksum = staging.SOURCES["small"].addresses[0], staging.SOURCES["small"].checksum
        pooch.retrieve(address, checksum, path=tmp_path / "pooch")
    assert held(staging.fetch("small", tmp_path)) == FILES


@pytest.mark.parametrize(
    "sent, reason",
    [
        (answer(WHOLE[:-1] + b"?"), r"/a \(another checksum\)"),
        (answer(WHOLE[:99], promised=len(WHOLE)), r"/a \(another checksum\)"),
        (answer(b"gone", status=404), r"/a \(Not Found\)"),
    ],
)
def test_what_never_arrives_whole_leaves_nothing(small, server, tmp_path, sent, reason):
    small(sent, mirror=sent)
    with pytest.raises(ConnectionError, match=f"fetched from http://.*{reason}; http://.*/b"):
        staging.fetch("small", tmp_path)
    assert server.asked == ["/a", "/b"] * 2 and not list(tmp_path.iterdir())


def test_no_server(small, server, tmp_path):
    small(answer(WHOLE))
    server.server_close()
    with pytest.raises(ConnectionError, match=r"refused\): stage .* where there is a network"):
        staging.fetch("small", tmp_path)


def test_a_directory_that_cannot_be_written(small, server, tmp_path, monkeypatch):
    small(answer(WHOLE))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="can be written, not in .*file"):
        staging.fetch("small", tmp_path / "file")

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(staging.tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match="can be written, not in .*: Permission denied"):
        staging.fetch("small", tmp_path)
    assert not server.asked


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interrupted_unpacking_leaves_no_half_folder_and_costs_no_second_download(
    small, server, tmp_path, monkeypatch, interruption
):
    def interrupted(archive, into):
        unpack(archive, into)
        (into / "faces/orl/s2/3.pgm").unlink()
        raise interruption

    small(answer(WHOLE))
    unpack = staging.unpack
    with monkeypatch.context() as patched:
        patched.setattr(staging, "unpack", interrupted)
        with pytest.raises(interruption):
            staging.fetch("small", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".small.archive"]
    assert held(staging.fetch("small", tmp_path)) == FILES
    assert server.asked == ["/a"]


def test_a_broken_archive_left_behind_is_fetched_again(small, tmp_path):
    small(answer(WHOLE))
    (tmp_path / ".small.archive").write_bytes(WHOLE[:100])
    assert held(staging.fetch("small", tmp_path)) == FILES


def test_a_data_set_with_a_file_too_few_is_refused(small, tmp_path):
    small(answer(WHOLE), files=7)
    with pytest.raises(ValueError, match=r"must hold 7 files s\*/\*.pgm, and holds 6"):
        staging.fetch("small", tmp_path)
    assert not (tmp_path / "small").exists()


def test_a_folder_in_the_way_is_not_taken_for_the_data_set(small, server, tmp_path):
    small(answer(WHOLE))
    (tmp_path / "small" / "s1").mkdir(parents=True)
    with pytest.raises(ValueError, match="must hold s1/1.pgm, and does not: name another DIR"):
        staging.fetch("small", tmp_path)
    (tmp_path / "small" / "s1" / "1.pgm").touch()
    with pytest.raises(ValueError, match="must hold 6 files .* and holds 1: name another DIR"):
        staging.fetch("small", tmp_path)
    assert not server.asked


@pytest.mark.parametrize("name", ["../out.pgm", "/out.pgm", "s1/../../out.pgm"])
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path, name, pack):
    archive = tmp_path / "archive"
    archive.write_bytes(pack({"s1/1.pgm": b"1", name: b"out"}))
    with pytest.raises(ValueError, match=f"must stay in its folder, and has {name}"):
        staging.unpack(archive, tmp_path / "into")
    assert not list(tmp_path.rglob("out.pgm"))


def test_a_link_is_left_out_so_nothing_is_written_through_it(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    archive = tmp_path / "archive"
    links = [("s1", str(tmp_path / "elsewhere")), ("s2", "../elsewhere")]
    archive.write_bytes(tar_of(FILES, links))
    staging.unpack(archive, tmp_path / "into")
    assert held(tmp_path / "into") == FILES and not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("content", [b"no archive", WHOLE[: len(WHOLE) // 2]])
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ValueError, match="archive cannot be unpacked"):
        staging.unpack(tmp_path / "archive", tmp_path / "into")


def marked(offset_here, offset_in_directory, value):
    """A zip file in which two fields of its only member have this value."""
    packed = bytearray(zip_of({"s1/1.pgm": b"1234"}))
    packed[offset_here] = packed[packed.find(b"PK\1\2") + offset_in_directory] = value
    return bytes(packed)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (marked(6, 8, 1), "is encrypted, password required"),
        (marked(8, 10, 99), "compression method is not supported"),
        (tar_of({"/".join(["d"] * 1500) + "/1.pgm": b""}), "recursion|File name too long"),
        (lzma.compress(b"1234" * 500)[:40] + bytes(40), "cannot be unpacked"),
    ],
    ids=["encrypted", "unknown method", "deep", "damaged xz"],
)
def test_archives_that_python_cannot_read_are_refused_in_a_sentence(tmp_path, content, reason):
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises((ValueError, OSError), match=reason):
        staging.unpack(tmp_path / "archive", tmp_path / "into")


def test_an_archive_without_the_data_set_is_not_kept(small, server, tmp_path):
    wrong = tar_of({"elsewhere/1.pgm": b""})
    small(answer(wrong), packed=wrong)
    for _ in range(2):
        with pytest.raises(ValueError, match="must hold s1/1.pgm, and does not"):
            staging.fetch("small", tmp_path)
        assert not list(tmp_path.iterdir())
    assert server.asked == ["/a"] * 2


@pytest.mark.parametrize("moment", ["_download", "_check_writable", "unpack"])
def test_two_who_fetch_at_once_both_get_the_data_set(small, tmp_path, monkeypatch, moment):
    """The other one finishes while this one is at any stage of its work."""
    small(answer(WHOLE))
    usual = getattr(staging, moment)

    def interrupted(*arguments):
        monkeypatch.setattr(staging, moment, usual)
        done = usual(*arguments) if moment != "unpack" else None
        staging.fetch("small", tmp_path)
        return done if moment != "unpack" else usual(*arguments)

    monkeypatch.setattr(staging, moment, interrupted)
    assert staging.fetch("small", tmp_path) == tmp_path / "small"
    assert held(tmp_path) == {f"small/{name}": content for name, content in FILES.items()}


def test_a_name_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="no data set 'bsds', there are bsds500, orl_faces, lfw"):
        staging.fetch("bsds", tmp_path)


def test_staged_data_are_found_through_the_variable_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="orl_faces/s1 .* COURSE_DATA, which is not set"):
        staging.staged("orl_faces", "s1")
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="s1 is missing: .*images stage DIR orl_faces` and"):
        staging.staged("orl_faces", "s1")
    (tmp_path / "orl_faces" / "s1").mkdir(parents=True)
    assert staging.staged("orl_faces", "s1") == tmp_path / "orl_faces" / "s1"


def test_the_command_names_what_it_staged(small, tmp_path, capsys):
    small(answer(WHOLE))
    staging.main(["stage", str(tmp_path), "small"])
    printed = capsys.readouterr().out
    assert printed == f"{tmp_path / 'small'}\nnow set COURSE_DATA={tmp_path}\n"


def test_the_command_as_the_advice_gives_it(tmp_path):
    command = [sys.executable, *staging.COMMAND.split()[1:], str(tmp_path), "nothing"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == "no data set 'nothing', there are bsds500, orl_faces, lfw\n"


@pytest.mark.parametrize("source", staging.SOURCES.values(), ids=staging.SOURCES)
def test_every_source_can_be_checked(source):
    kind, digest = source.checksum.split(":")
    assert len(bytes.fromhex(digest)) == hashlib.new(kind).digest_size
    assert all(address.startswith("http") for address in source.addresses)
