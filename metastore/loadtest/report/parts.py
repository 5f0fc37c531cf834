"""The parts of a report's page. All texts from the run are escaped here or by the caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from metastore.charts.chart import Chart
from metastore.charts.svg import svg

__all__ = ["cells", "charts", "facts_list", "heads", "name", "ranking", "tile"]


def name(text: str) -> str:
    """Return a text from the run, escaped and isolated, so that it cannot turn the direction of other text."""
    return f"<bdi>{escape(text)}</bdi>"


def heads(*names: str) -> str:
    """Return the header cells of columns of numbers."""
    return "".join(f'<th class="n">{text}</th>' for text in names)


def cells(texts: Iterable[str]) -> str:
    """Return cells of numbers."""
    return "".join(f'<td class="n">{text}</td>' for text in texts)


def tile(what: str, value: str, more: str, *, warn: bool = False) -> str:
    """Return a tile with one important number."""
    parts = (("name", what), ("value", value), ("more", more))
    inner = "".join(f'<div class="{part}">{text}</div>' for part, text in parts)
    return f'<div class="card tile{" warn" * warn}">{inner}</div>'


def charts(shown: Sequence[Chart], *more: str) -> Iterator[str]:
    """Yield cards side by side: the charts, and the cards in ``more``."""
    yield '<div class="charts">'
    for chart in shown:
        yield f'<section class="card"><h3>{escape(chart.title)}</h3>{svg(chart)}</section>'
    yield from more
    yield "</div>"


def ranking(rows: Sequence[tuple[str, str, int]], otherwise: str) -> Iterator[str]:
    """Yield horizontal bars from (name, details, length); without rows, the text ``otherwise``."""
    if not rows:
        yield f'<p class="soft">{otherwise}</p>'
        return
    most = max(count for _, _, count in rows)
    yield '<ul class="ranking">'
    for what, more, count in rows:
        extra = f' <span class="soft">{more}</span>' if more else ""
        yield f'<li><div class="row"><span>{what}{extra}</span><span>{count:,}</span></div>'
        yield f'<div class="track"><i style="width:{100 * count / most:.2f}%"></i></div></li>'
    yield "</ul>"


def facts_list(title: str, facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a section with words and their meanings."""
    yield f'<h2>{title}</h2><section class="card"><dl>'
    yield "".join(f"<dt>{word}</dt><dd>{meaning}</dd>" for word, meaning in facts)
    yield "</dl></section>"
