"""What ranks print, in the notebook cell that started them: line by line, each with its rank.

Whatever they print, little of it is held here: of a long line its beginning, of a long text its two
ends.
"""

import codecs
import re
import sys
from collections import deque

LINE_CHARACTERS = 64 << 10  # of a line that are shown
KEPT_CHARACTERS = 1 << 20  # of a text that is shown later: at its beginning, and at its end


class LineBuffer:
    """The text of one stream of one rank as it comes in.

    A line may be shown when it is complete; one that its rank rewrites (a progress bar starts it
    again with a carriage return) as it goes.
    """

    def __init__(self, prefix: str):
        self.prefix, self.fresh, self.rewriting = prefix, True, False
        self.held, self.left_out = "", 0  # of a line that has no end
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, data: bytes) -> str:
        """What may be shown now that `data` has come (no data: the stream has ended)."""
        text = self.decode(data, not data)
        self.rewriting = self.rewriting or "\r" in text
        if self.rewriting:
            return self._marked(self._release() + text, data)
        *lines, begun = text.split("\n")
        shown = "".join([self._release(line) + "\n" for line in lines])
        self._hold(begun)
        return self._marked(shown if data else shown + self._release(), data)

    def _hold(self, text):
        self.left_out += max(0, len(self.held) + len(text) - LINE_CHARACTERS)
        self.held = (self.held + text)[:LINE_CHARACTERS]

    def _release(self, end=""):
        """The line that was held, with its end."""
        self._hold(end)
        text = self.held + left_out(self.left_out, "character")
        self.held, self.left_out = "", 0
        return text

    def _marked(self, text, data):
        """The text with its rank in front of each line."""
        text = ("\r" if self.fresh else ".") + text  # as if that had come before
        self.fresh, self.rewriting = text[-1] in "\r\n", self.rewriting and text[-1] != "\n"
        shown = re.sub(r"[\r\n](?=[^\r\n])", lambda end: end[0] + self.prefix, text)[1:]
        if not data and not self.fresh:
            shown, self.fresh = shown + "\n", True
        return shown


def left_out(count: int, what: str) -> str:
    """How much was left out, in words; nothing if nothing was."""
    return f" … {count} {what}{'s' if count > 1 else ''} left out" if count > 0 else ""


class Excerpt:
    """The beginning and the end of a text that comes in pieces."""

    def __init__(self):
        self.head, self.tail, self.room, self.size, self.lines = [], deque(), KEPT_CHARACTERS, 0, 0

    def append(self, text: str):
        if self.room > 0:
            self.head.append(text)
            self.room -= len(text)
            return
        self.tail.append(text)
        self.size += len(text)
        while self.size - len(self.tail[0]) > KEPT_CHARACTERS:
            dropped = self.tail.popleft()
            self.size -= len(dropped)
            self.lines += dropped.count("\n")

    def text(self) -> str:
        gap = f"{left_out(self.lines, 'line').strip()}\n" if self.lines else ""
        return "".join([*self.head, gap, *self.tail])


class Printer:
    """Rank 0 speaks as it goes, the others at the end in rank order; `live`: all as they go."""

    def __init__(self, ranks: int, live: bool):
        self.live = live
        self.lines = {(r, k): LineBuffer(f"[{r}] ") for r in range(ranks) for k in ("out", "err")}
        self.later = {key: Excerpt() for key in self.lines}

    def show(self, rank: int, kind: str, data: bytes):
        """Show what a rank printed to `kind` (out, err), or keep it for the end."""
        text = self.lines[rank, kind].feed(data)
        if self.live or rank == 0:
            write(kind, text)
        else:
            self.later[rank, kind].append(text)

    def finish(self):
        """Show what was kept, the last words of ranks that were ended included."""
        for rank, kind in self.lines:
            self.show(rank, kind, b"")
        for (_, kind), excerpt in self.later.items():
            write(kind, excerpt.text())


def write(kind: str, text: str):
    """Show text in the notebook; a script may have no such stream, or one of few letters."""
    stream = sys.stdout if kind == "out" else sys.stderr
    if text and stream:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        stream.flush()
