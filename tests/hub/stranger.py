"""What another user of the machine tries: `python stranger.py`, as that user, with a JSON of what
there is to try in standard input; prints what it could reach, one line each, and `tried N`."""

import http.client
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

TIMEOUT_S = 2.0
# A server has not understood; ZeroMQ's greeting, on the port where ipykernel takes what child
# processes print: it tells nothing, and drops what does not begin with the kernel's secret.
REFUSALS = b"HTTP/1.1 400", b"\xff\0\0\0\0\0\0\0\x01\x7f"


def readable(files):
    """Files whose content it can read."""
    for name in files:
        try:
            with open(name, "rb") as file:
                yield f"file {name}: {file.read(40)!r}"
        except OSError:
            pass


def told_by(processes):
    """What processes of others show of themselves besides their command."""
    for pid in processes:
        for name in ("environ", "mem", "maps", "fd"):
            place = Path(f"/proc/{pid}/{name}")
            try:
                shown = os.listdir(place) if place.is_dir() else place.read_bytes()[:40]
            except OSError:
                continue
            yield f"process {place}: {shown!r}"


def sockets_open(names):
    """Sockets in folders that it can connect to."""
    for name in names:
        with socket.socket(socket.AF_UNIX) as one:
            if one.connect_ex(name) == 0:
                yield f"socket {name}"


def answers(urls):
    """Pages that it is shown, without a token or with one that was made up."""
    no_server = set()  # says nothing at all
    for url in urls:
        for token in ("", "0" * 32):
            if urlsplit(url).netloc in no_server:
                continue
            request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as page:
                    if "/login" not in page.url:
                        yield f"page {url}: {page.read(80)!r}"
            except urllib.error.HTTPError:
                pass  # it says no
            except (OSError, http.client.HTTPException):
                no_server.add(urlsplit(url).netloc)


def words(doors):
    """What ports of its own kind say to a stranger: 56 bytes are the size of a ticket."""
    for address in doors:
        try:
            with socket.create_connection(address, TIMEOUT_S) as one:
                one.sendall(bytes(56))
                if (said := one.recv(100)) and not said.startswith(REFUSALS):
                    yield f"port {address}: {said!r}"
        except OSError:
            pass


TRIES = {"files": readable, "processes": told_by, "sockets": sockets_open, "urls": answers,
         "doors": words}  # fmt: skip

if __name__ == "__main__":
    what = json.load(sys.stdin)
    with ThreadPoolExecutor() as pool:  # most of the time it waits for a word
        for found in pool.map(lambda kind: [*TRIES[kind](what[kind])], what):
            print(*found, sep="\n")
    print("tried", sum(map(len, what.values())))
