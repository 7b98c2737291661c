"""One page of a result, to be handed in: texts, tables and figures in one HTML file, offline."""

import html
import io
from pathlib import Path

LOOKS = (
    "body{font:15px/1.4 sans-serif;max-width:48em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:.5em 0}td,th{border:1px solid #999;padding:.2em .6em;"
    "text-align:left}svg{max-width:100%;height:auto}h1{font-size:1.4em}h2{font-size:1.1em}"
)


def write_page(path, title: str, parts: dict) -> Path:
    """A page of sections {heading: what}: a text, a table (a list of rows, the first its head), or
    the axes of a figure, which is drawn into the page; its path."""
    body = "".join(f"<h2>{html.escape(name)}</h2>{_shown(what)}" for name, what in parts.items())
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{LOOKS}</style>"
    page = f"<!doctype html><html><head>{head}</head><body><h1>{html.escape(title)}</h1>{body}"
    path = Path(path)
    path.write_text(f"{page}</body></html>\n", encoding="utf-8")
    return path


def _shown(what) -> str:
    if isinstance(what, str):
        return "".join(f"<p>{html.escape(text)}</p>" for text in what.split("\n\n"))
    if isinstance(what, list):
        head, *rows = what
        return f"<table>{_row(head, 'th')}{''.join(_row(row, 'td') for row in rows)}</table>"
    drawn = io.StringIO()
    what.figure.savefig(drawn, format="svg", bbox_inches="tight")
    return drawn.getvalue().partition("<svg")[1] + drawn.getvalue().partition("<svg")[2]


def _row(cells, tag) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
