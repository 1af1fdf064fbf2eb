"""Pictures to files: PNG or SVG, or one page of HTML that holds the picture and a table and loads nothing."""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif }} td, th {{ padding: 0.2em 1em; text-align: left }}</style></head>
<body><h1>{title}</h1><img alt="{title}" src="data:image/png;base64,{picture}">
<table><tr>{header}</tr>{rows}</table></body></html>
"""


def canvas(height: float) -> tuple[Any, Any]:
    """A figure of ten inches by this height, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save(figure: Any, out: Path, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes the figure in the form that the file's name asks for; the table is in the page alone."""
    if out.suffix.lower() not in (".html", ".htm"):
        figure.savefig(out, dpi=120)
        return
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120, format="png")
    picture = base64.b64encode(drawn.getvalue()).decode("ascii")
    page = _PAGE.format(
        title=escape(title),
        picture=picture,
        header=_cells("th", header),
        rows="".join(f"<tr>{_cells('td', row)}</tr>" for row in rows),
    )
    out.write_text(page, encoding="utf-8")


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
