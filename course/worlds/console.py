"""What ranks print, in the notebook cell that started them: line by line, each with its rank."""

import codecs
import re
import sys


class LineBuffer:
    """The text of one stream of one rank as it comes in.

    A line may be shown when it is complete; one that its rank rewrites (a progress bar starts it
    again with a carriage return) as it goes.
    """

    def __init__(self, prefix: str):
        self.prefix, self.held, self.fresh, self.rewriting = prefix, "", True, False
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, data: bytes) -> str:
        """What may be shown now that `data` has come (no data: the stream has ended)."""
        text = self.held + self.decode(data, not data)
        self.rewriting = self.rewriting or "\r" in text
        end = text.rfind("\n") + 1 if data and not self.rewriting else len(text)
        text, self.held = text[:end], text[end:]
        shown = re.sub(r"[\r\n](?=[^\r\n])", lambda end: end[0] + self.prefix, text)
        if text and text[0] not in "\r\n" and self.fresh:
            shown = self.prefix + shown
        if text:
            self.fresh = text[-1] in "\r\n"
            self.rewriting = self.rewriting and text[-1] != "\n"
        return shown + ("" if data or self.fresh else "\n")


class Printer:
    """Rank 0 speaks as it goes, the others at the end in rank order; `live`: all as they go."""

    def __init__(self, ranks: int, live: bool):
        self.live = live
        self.lines = {(r, k): LineBuffer(f"[{r}] ") for r in range(ranks) for k in ("out", "err")}
        self.later = {key: [] for key in self.lines}

    def show(self, rank: int, kind: str, data: bytes):
        """Show what a rank printed to `kind` (out, err), or keep it for the end."""
        text = self.lines[rank, kind].feed(data)
        if self.live or rank == 0:
            write(kind, text)
        else:
            self.later[rank, kind].append(text)

    def finish(self):
        """Show what was kept."""
        for (_, kind), texts in self.later.items():
            write(kind, "".join(texts))


def write(kind: str, text: str):
    if text:
        stream = sys.stdout if kind == "out" else sys.stderr
        stream.write(text)
        stream.flush()
