"""The page: what goes in, and how it becomes one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jinja2
import pandas as pd
from markupsafe import Markup

from normlab.claims import RegimeVerdict, Verdict, false_verdicts_expected, judge_all
from normlab.digits import cell
from normlab.errors import DataError
from normlab.files import write_whole
from normlab.inspection import Inspection
from normlab.inspection.inspection import COLUMNS_SAY
from normlab.plots import PLOTS, Plot, draw, skipped
from normlab.reports._definitions import definitions
from normlab.reports._inspection import EVERY, layer_queries, tables_of
from normlab.reports._interval import exact, extreme, strip
from normlab.reports._rows import Grid, as_precise, data_uri, exported, grids
from normlab.reports._source import Source, read_source
from normlab.reports._svg import inline_svg
from normlab.reports._text import means_line, subscripted, title, untested
from normlab.reports._theory import theory_view
from normlab.sweeps.predicted import theory_of

_TEMPLATES: Final = Path(__file__).parent / "templates"
#: Where q on an axis and the fitted law come from.
_STREAM_QUERY: Final = "quantity == 'mean_square' and site == 'stream'"


@dataclass(frozen=True)
class FigureView:
    """A plot as the page shows it.

    Attributes:
        number: 1, 2, ... in the order of the page.
        plot: what it is.
        finding: what it shows, in one sentence.
        caption: what lines and bands are.
        svg: the drawing.
        aspect: its height over its width.
        grids: the tables behind it.
        code: what gives its means from the table.
        behind: each quantity that it draws, as a plot of its own, and its points.
    """

    number: int
    plot: Plot
    finding: str
    caption: str
    svg: Markup
    aspect: float
    grids: tuple[Grid, ...]
    code: str
    behind: tuple[tuple[Plot, pd.DataFrame], ...]


def report(run_or_table: pd.DataFrame | Path | str, path: Path | str, *, inspection: Inspection | None = None) -> Path:
    """Write the report of a sweep, or of one recorded model, as :func:`normlab.reports.report` says."""
    path = Path(path)
    html = page(read_source(run_or_table), inspection)
    write_whole(path, html)
    return path


def page(source: Source, inspection: Inspection | None = None) -> str:
    """Return the report on ``source`` as HTML."""
    beside = theory_of(source.table, source.folder)
    drawn = enumerate(_drawn(source.table, inspection is None), start=1)
    figures = tuple(_figure(number, source.table, plot, beside.table) for number, plot in drawn)
    points = {plot.name: (plot, rows) for figure in figures for plot, rows in figure.behind}
    # Claims speak of models at initialisation, and of several seeds.
    verdicts, unjudged = _verdicts(source.table) if inspection is None else ((), "")
    queries = [plot.needs.query for plot, _ in points.values()] + [str(verdict.rows["query"]) for verdict in verdicts]
    export = exported(points)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=title(source) if inspection is None else f"Inspection of {inspection.short_name}",
            inspection=inspection,
            layers=() if inspection is None else tables_of(inspection),
            every=EVERY,
            columns_say=COLUMNS_SAY,
            source=source,
            figures=figures,
            by_name={figure.plot.name: figure for figure in figures},
            skipped=skipped(source.table),
            theory=theory_view(source.table, beside),
            verdicts=verdicts,
            unjudged=unjudged,
            false_verdicts=false_verdicts_expected(verdicts),
            definitions=definitions([*queries, *(layer_queries(inspection) if inspection else [_STREAM_QUERY])]),
            download=data_uri(export),
            download_kb=round(len(export.encode()) / 1024),
        )
    )


def _drawn(table: pd.DataFrame, of_sweep: bool) -> list[Plot]:
    """Return the plots that the table has rows for; a plot against depth would show one point of one model."""
    return [plot for _, plot in PLOTS.items() if not plot.missing(table) and (of_sweep or plot.panels)]


def _figure(number: int, table: pd.DataFrame, plot: Plot, theory: pd.DataFrame) -> FigureView:
    few, expected = plot.relevant(table), plot.relevant(theory)
    finding, (own, *others) = plot.finding(few), plot.each(few)
    behind = ((own, own.aggregated(few, expected)), *((other, other.aggregated(few)) for other in others))
    figure = draw(few, plot.name, theory=expected, titled=False)
    width, height = figure.get_size_inches()
    svg = inline_svg(figure, f"figure-{number}", plot.title, finding)
    return FigureView(
        number=number,
        plot=plot,
        finding=finding,
        caption=plot.describe(behind[0][1]),
        svg=svg,
        aspect=float(height / width),
        grids=tuple(grid for one, points in behind for grid in grids(one, points)),
        code="\n\n".join(means_line(one, points, table) for one, points in behind),
        behind=behind,
    )


def _verdicts(table: pd.DataFrame) -> tuple[tuple[Verdict, ...], str]:
    """The verdicts, or none and the reason."""
    try:
        return tuple(judge_all(table)), ""
    except DataError as error:
        return (), str(error)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"rounded": cell, "as_precise": as_precise, "words": _words, "moment": _moment}
    environment.filters |= {"subscripted": subscripted}
    environment.globals |= {"strip": strip, "extreme": extreme, "untested": untested}
    environment.globals |= {"css": Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8"))}
    environment.tests |= {"tested": _tested, "exact": exact}
    return environment


def _words(name: str) -> str:
    return name.replace("_", " ")


def _moment(created: str) -> str:
    """An ISO moment as a reader writes it."""
    return created.replace("T", " ").replace("+00:00", " UTC")


def _tested(regime: RegimeVerdict) -> bool:
    return regime.verdict != "not-tested"
