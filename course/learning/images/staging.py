"""Fetch the data sets of the course into a directory, check them, and find them there again.

The directory is named by the environment variable COURSE_DATA, and by nothing else.
"""

import argparse
import http.client
import lzma
import os
import shutil
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

COMMAND = "python -m course.learning.images stage"


class Source(NamedTuple):
    """Where a data set comes from: addresses of the same archive, tried in turn, and its checksum.

    The data set is the folder, somewhere in the archive, in which the path `landmark` leads to a
    file; `files` paths in that folder match `pattern`.
    """

    addresses: tuple
    checksum: str
    landmark: str
    pattern: str
    files: int


BERKELEY = "eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/BSR_bsds500.tgz"

# Checksums as stated by many public repositories (BSDS500), by bob.bio.face for the first address
# (ORL), and by scikit-learn (LFW, the faces aligned by funnelling).
SOURCES = {
    "bsds500": Source(
        addresses=(f"https://www2.{BERKELEY}", f"https://www.{BERKELEY}"),
        checksum="sha256:97e49d31764f3912f0c4122707d53062ac9e783ba0f095e447a4d53c1a41af8e",
        landmark="train/100075.jpg",
        pattern="*/*.jpg",
        files=500,
    ),
    "orl_faces": Source(
        addresses=(
            "http://www.idiap.ch/software/bob/data/bob/att_faces.zip",
            "https://www.cl.cam.ac.uk/Research/DTG/attarchive/pub/data/att_faces.zip",
        ),
        checksum="md5:6efb25cb0d40755e9492b9c012e3348d",
        landmark="s1/1.pgm",
        pattern="s*/*.pgm",
        files=400,
    ),
    "lfw": Source(
        addresses=("https://ndownloader.figshare.com/files/5976015",),
        checksum="sha256:b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a",
        landmark="George_W_Bush/George_W_Bush_0001.jpg",
        pattern="*/*.jpg",
        files=13_233,
    ),
}


# RuntimeError: encrypted, packed by a method that Python does not know, or nested too deeply.
UNREADABLE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, RuntimeError,
)  # fmt: skip


def staged(*parts):
    """The path of a staged data set or of a file in it, as in `staged("orl_faces", "s1")`.

    Raises FileNotFoundError where COURSE_DATA is not set or has no such part.
    """
    advice = f"fetch it with `{COMMAND} DIR {parts[0]}` and set COURSE_DATA=DIR"
    directory, wanted = os.environ.get("COURSE_DATA"), "/".join(parts)
    if not directory:
        raise FileNotFoundError(f"{wanted} must be in COURSE_DATA, which is not set: {advice}")
    path = Path(directory, *parts)
    if not path.exists():
        raise FileNotFoundError(f"{wanted} must be in COURSE_DATA, and {path} is missing: {advice}")
    return path


def fetch(name, directory):
    """Bring the data set `name` of SOURCES into `directory`; returns its path there.

    Whatever interrupts, `directory`/`name` is complete or not there. A complete one costs nothing;
    an archive already downloaded is unpacked again, not fetched again. Several processes may fetch
    at once: the first to finish counts.
    Raises ValueError or OSError, one sentence each.
    """
    if name not in SOURCES:
        raise ValueError(f"no data set {name!r}, there are {', '.join(SOURCES)}")
    source, place = SOURCES[name], Path(directory, name)
    if not place.exists():
        try:
            _bring(source, place)
        except OSError:
            if not place.exists():  # else another process was faster
                raise
    return _checked(source, place)


def _bring(source, place):
    _check_writable(place.parent)
    archive = place.with_name(f".{place.name}.archive")
    _download(source, archive)
    try:
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as beside:
            unpack(archive, Path(beside, "all"))
            _checked(source, Path(beside, "all")).rename(place)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or place.exists():  # it is wrong, or not needed any more
            archive.unlink(missing_ok=True)
        raise
    archive.unlink(missing_ok=True)


def unpack(archive, into):
    """Write the files in the tar or zip file `archive` below the folder `into`; links are left out.

    Raises ValueError where a file would land outside `into`, or the archive cannot be read.
    """
    try:
        for name, content in _files(archive):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{archive} must stay in its folder, and has {name}")
            place = Path(into, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            with content, place.open("wb") as out:
                shutil.copyfileobj(content, out)
    except UNREADABLE as error:
        raise ValueError(f"{archive} cannot be unpacked: {error}") from error


def main(arguments=None):
    """Fetch data sets into a directory, all of them (some 300 MB) where none is named."""
    parser = argparse.ArgumentParser(prog="python -m course.learning.images")
    stage = parser.add_subparsers(required=True).add_parser("stage", description=main.__doc__)
    stage.add_argument("directory", metavar="DIR")
    stage.add_argument("names", metavar="NAME", nargs="*", help=", ".join(SOURCES))
    told = parser.parse_args(arguments)
    try:
        for name in told.names or SOURCES:
            print(fetch(name, told.directory))
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error
    print(f"now set COURSE_DATA={Path(told.directory).resolve()}")


def _check_writable(directory):
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise OSError(
            f"data are staged in a directory that can be written, not in {directory}: "
            f"{error.strerror}"
        ) from error


def _download(source, archive):
    """Bring the archive from the first address that sends it whole; each has two chances."""
    import pooch

    failures = {}
    for address in 2 * source.addresses:
        try:
            pooch.retrieve(address, source.checksum, archive.name, archive.parent, downloader=_copy)
            return
        except (OSError, ValueError, http.client.HTTPException) as error:
            wrong = isinstance(error, ValueError)  # how pooch says it
            failures[address] = "another checksum" if wrong else getattr(error, "reason", error)
    tried = "; ".join(f"{address} ({reason})" for address, reason in failures.items())
    raise ConnectionError(
        f"nothing could be fetched from {tried}: stage the data where there is a network, and copy"
    )


def _copy(address, file, _):
    # Not pooch's own downloader: some servers call a .tgz «tar, encoded by gzip», and it decodes.
    from tqdm import tqdm

    with urllib.request.urlopen(address, timeout=30) as answer, open(file, "wb") as out:
        size = int(answer.headers.get("Content-Length", 0)) or None
        with tqdm.wrapattr(answer, "read", total=size, desc=address.split("/")[-1]) as told:
            shutil.copyfileobj(told, out)


def _files(archive):
    # Not extractall(filter="data"), which Python 3.11.2 (Debian 12) lacks, and later ones demand.
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for member in opened.infolist():
                if not member.is_dir():
                    yield member.filename, opened.open(member)
    else:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile():
                    yield member.name, opened.extractfile(member)


def _checked(source, folder):
    """The data set in or below `folder`; raises ValueError where it is not complete."""
    found = next(folder.rglob(source.landmark), None)
    if found is None:
        raise ValueError(f"{folder} must hold {source.landmark}, and does not: name another DIR")
    data_set = found.parents[source.landmark.count("/")]
    files = len(list(data_set.glob(source.pattern)))
    if files != source.files:
        raise ValueError(
            f"{data_set} must hold {source.files} files {source.pattern}, and holds {files}: "
            "name another DIR"
        )
    return data_set
