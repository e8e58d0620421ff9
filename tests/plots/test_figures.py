import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from types import ModuleType

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import normlab.plots
from normlab.errors import DataError, UnknownNameError
from normlab.plots import PLOTS, draw, save, skipped, style, write_plots

#: The plots of a sweep's table.
SWEPT = {name: plot for name, plot in PLOTS.items() if plot.of in ("recording", "jacobian")}


def svg(figure: Figure) -> bytes:
    file = BytesIO()
    with style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


@pytest.mark.parametrize("name", SWEPT)
def test_the_same_table_gives_the_same_bytes(name: str, small: pd.DataFrame, tmp_path: Path) -> None:
    for suffix in ("svg", "png"):
        first = save(draw(small, name), tmp_path / f"a.{suffix}").read_bytes()
        again = save(draw(small.copy(), name), tmp_path / f"b.{suffix}").read_bytes()
        assert first == again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


def test_neither_the_callers_settings_nor_threads_change_a_figure(small: pd.DataFrame) -> None:
    alone = svg(draw(small, "token_overlap"))
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        with ThreadPoolExecutor(2) as pool:
            assert set(pool.map(lambda _: svg(draw(small, "token_overlap")), range(2))) == {alone}
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", SWEPT)
def test_lines_are_the_aggregated_rows_and_axes_have_names(name: str, table: pd.DataFrame) -> None:
    placed = PLOTS[name].aggregated(table)
    ax = PLOTS[name].function(table)
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.get_lines()])
    assert np.isin(placed["centre"].to_numpy(), drawn).all()
    assert ax.get_xlabel() and ax.get_ylabel() and ax.get_legend() is not None


def test_a_function_draws_on_the_axes_that_it_is_given(table: pd.DataFrame) -> None:
    ax = Figure().subplots()
    assert normlab.plots.stream_growth(table, ax=ax, x="fraction") is ax
    assert ax.get_xlabel() == "relative depth ℓ/L"


def test_every_kind_of_model_has_a_panel_with_the_same_limits(table: pd.DataFrame) -> None:
    axes = draw(table, "update_ratio").axes
    assert [ax.get_title("left") for ax in axes] == ["post · attention", "post · MLP", "pre · attention", "pre · MLP"]
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1


def test_the_fitted_law_is_drawn_and_named(sim: ModuleType) -> None:
    ax = normlab.plots.stream_growth(sim.sweep(("pre",), depths=(2, 8, 16), seeds=5))
    label, line = next((str(line.get_label()), line) for line in ax.get_lines() if str(line.get_label())[0] == "q")
    a, b = (float(part) for part in label.removeprefix("q = ").split("·")[0].split(" + "))
    assert (a, b) == pytest.approx((1.0, 1.2), abs=0.1)
    np.testing.assert_allclose(line.get_ydata(), np.sqrt(a + b * np.asarray(line.get_xdata())), rtol=0.02)


def _split_vote(sim: ModuleType) -> pd.DataFrame:
    """Five seeds, of which two grow by another law."""
    table = sim.sweep(("pre",), depths=(16,), seeds=5, noise=0.01)
    other = (table["quantity"] == "mean_square") & (table["model_seed"] > 2)
    return table.assign(value=table["value"].mask(other, 2 * table["layer"].astype(float).add(1) ** 0.5))


def test_a_law_that_the_seeds_do_not_agree_on_is_said_and_not_drawn(sim: ModuleType) -> None:
    table = _split_vote(sim)
    ax = normlab.plots.stream_growth(table)
    written = [text.get_text() for text in ax.texts]
    assert written == ["no single law fits (3 of 5 seeds prefer q = a + b·ℓ)"]
    assert {str(line.get_label()) for line in ax.get_lines()} == {"16"}
    assert written[0] in PLOTS["stream_growth"].finding(table)


@pytest.mark.parametrize("seeds", [1, 5])
def test_a_law_that_is_far_off_is_said_and_not_drawn(sim: ModuleType, seeds: int) -> None:
    table = sim.sweep(("pre",), depths=(16,), seeds=seeds)
    late = table["quantity"].isin(("mean_square", "rms")) & (table["layer"] > 8)
    ax = normlab.plots.stream_growth(table.assign(value=table["value"].mask(late, 1e4 * table["value"])))
    (written,) = [text.get_text() for text in ax.texts]
    assert re.fullmatch(r"no law of two parameters fits\n\(the nearest, .*, is typically \d\.\d\d-fold off\)", written)
    assert {str(line.get_label()) for line in ax.get_lines()} == {"16"}


def test_a_layer_outside_the_law_is_named_in_the_caption(sim: ModuleType) -> None:
    table = sim.sweep(("pre",), depths=(16,), seeds=5, noise=0.01)
    at = (table["quantity"] == "mean_square") & (table["layer"] == 7) & (table["sublayer"] == "mlp")
    caption = PLOTS["stream_growth"].finding(table.assign(value=table["value"].mask(at, 5 * table["value"])))
    (ratio,) = re.findall(r"most at layer 7, where q is (\S+) times the law's\.", caption)
    assert 3 < float(ratio) < 5
    assert "most at layer" not in PLOTS["stream_growth"].finding(table)


def test_no_law_is_read_from_rows_that_are_not_finite(sim: ModuleType) -> None:
    table = sim.sweep(("pre",), depths=(16,), seeds=5).assign(status="nonfinite")
    assert "q =" not in PLOTS["stream_growth"].finding(table)


def test_a_guide_has_slope_one_half_and_stands_beside_growth_alone(table: pd.DataFrame) -> None:
    post, pre = draw(table, "stream_growth").axes
    guides = [[line for line in ax.get_lines() if "√ℓ" in str(line.get_label())] for ax in (post, pre)]
    assert [len(found) for found in guides] == [0, 1]
    x, y = guides[1][0].get_data()
    np.testing.assert_allclose(np.diff(np.log(y)) / np.diff(np.log(x)), 0.5)


def test_a_linear_axis_has_no_guide(sim: ModuleType) -> None:
    for ax in (
        normlab.plots.stream_growth(sim.cell("pre", 16, 0)),
        *draw(sim.sweep(("pre",)), "stream_growth", x="fraction").axes,
    ):
        assert ax.get_xscale() == "linear"
        assert not [line for line in ax.get_lines() if "√ℓ" in str(line.get_label())]


def test_one_depth_needs_no_title_of_the_legend(sim: ModuleType) -> None:
    legend = normlab.plots.stream_growth(sim.cell("pre", 6, 0)).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["L = 6"] and not legend.get_title().get_text()
    (legend,) = draw(sim.sweep(("pre",), depths=(2, 6), seeds=1), "update_ratio").legends
    assert [text.get_text() for text in legend.get_texts()] == ["2", "6"]
    assert legend.get_title().get_text() == "depth L"


def test_predicted_curves_that_differ_are_told_apart_and_named(sim: ModuleType) -> None:
    depths = (2, 4, 8, 16)
    table = sim.sweep(("pre",), depths=depths, seeds=2)
    other = table["value"] * (1 + 0.3 * np.log2(table["depth"].astype(float)))
    for values, names in ((other, ["L = 16", "L = 2", "L = 8"]), (1.0, [])):
        theory = table.assign(value=values, source="theory")
        ax = normlab.plots.gradient_profile(table, theory=theory)
        lines = [line for line in ax.get_lines() if line.get_label() == "theory"]
        assert sorted(text.get_text() for text in ax.texts) == names
        assert len(lines) == (3 if names else 4)
        assert len({str(line._dash_pattern) for line in lines}) == (3 if names else 1)
        caption = PLOTS["gradient_profile"].describe(PLOTS["gradient_profile"].aggregated(table, theory))
        assert ("of L = 2, 8 and 16 as named at their ends" in caption) is bool(names)


def test_an_inspected_model_has_the_curves_that_words_speak_of(sim: ModuleType) -> None:
    table = sim.cell("pre", 6, 0)
    for name, of, more, label, only in (
        ("stream_growth", "rms", "bulk_rms", "without the most massive\ntoken of each sequence", {}),
        ("update_ratio", "update_ratio", "median_update_ratio", "median token", {"sublayer": "mlp"}),
    ):
        rows = table[table["quantity"] == of]
        both = pd.concat([table, rows.assign(quantity=more, value=0.5 * rows["value"])], ignore_index=True)
        lines = {str(line.get_label()): line for line in PLOTS[name].function(both, **only).get_lines()}
        half = 0.5 * np.asarray(lines["all entries"].get_ydata())
        np.testing.assert_allclose(lines[label].get_ydata(), half)
        assert lines[label].get_linestyle() != lines["all entries"].get_linestyle()
        assert PLOTS[name].finding(both).count("From layer") == 2
        assert len(draw(both, name).axes[0].get_lines()) == 2


def test_the_slope_is_in_the_legend(table: pd.DataFrame) -> None:
    labels = [text.get_text() for text in draw(table, "last_gradient").axes[0].get_legend().get_texts()]
    assert labels[0].startswith("post: slope") and labels[1].startswith("pre: slope −0.") and "[" in labels[1]


def test_theory_is_drawn_only_where_there_is_one(sim: ModuleType, table: pd.DataFrame) -> None:
    theory = sim.sweep(depths=(2, 8, 16), seeds=1).assign(source="theory")
    for name, plot in SWEPT.items():
        without, with_theory = (
            [line.get_label() for line in plot.function(table, theory=given).get_lines()] for given in (None, theory)
        )
        assert "theory" not in without and "theory" in with_theory, name


@pytest.mark.parametrize("name", SWEPT)
@pytest.mark.parametrize("x", ["layer", "fraction", "q"])
def test_one_depth_and_one_seed_can_be_drawn(name: str, x: str, sim: ModuleType) -> None:
    if (name, x) == ("last_gradient", "fraction"):
        with pytest.raises(DataError, match="ℓ/L = 1"):
            draw(sim.cell("pre", 3, 0), name, x=x)
        return
    assert draw(sim.cell("pre", 3, 0), name, x=x).axes


def test_depth_1000_becomes_pixels_beyond_2000_points(sim: ModuleType) -> None:
    deep = sim.sweep(("pre",), depths=(1000,), seeds=2)
    assert b"<image" not in svg(draw(deep, "stream_growth", titled=False))
    wide = pd.concat([deep, deep.assign(depth=pd.array([1001] * len(deep), dtype="Int64"))], ignore_index=True)
    assert b"<image" in svg(draw(wide, "stream_growth"))


def test_twenty_placements_have_twenty_panels(many: pd.DataFrame) -> None:
    assert len(draw(many, "token_overlap").axes) == 20
    assert len(draw(many, "last_gradient").axes) == 1


@pytest.mark.parametrize("name", ["stream_growth", "gradient_profile", "last_gradient"])
def test_what_is_not_finite_is_a_marked_gap(name: str, table: pd.DataFrame) -> None:
    at = (table["placement"] == "pre") & (table["depth"] == 16) & (table["layer"] == 16) & (table["model_seed"] == 1)
    broken = table.assign(
        value=table["value"].mask(at, np.inf), status=table["status"].astype(object).mask(at, "nonfinite")
    )
    marks = [line for line in PLOTS[name].function(broken).get_lines() if line.get_label() == "not finite"]
    assert [mark.get_xdata().tolist() for mark in marks] == [[16.0]]
    assert "×: a seed is not finite (1 of" in PLOTS[name].caption(broken)


def test_a_table_of_nothing_finite_can_be_drawn(small: pd.DataFrame) -> None:
    for name in ("stream_growth", "last_gradient", "token_overlap"):
        assert svg(draw(small.assign(value=np.nan, status="nonfinite"), name))


def test_what_is_missing_is_left_out_with_a_reason(table: pd.DataFrame, tmp_path: Path) -> None:
    poor = table[table["site"] != "update"]
    assert list(skipped(poor)) == ["update_ratio"] and "no rows of update_ratio" in skipped(poor)["update_ratio"]
    with pytest.raises(DataError, match="update_ratio cannot be drawn: the table has no rows"):
        draw(poor, "update_ratio")
    written = write_plots(poor, tmp_path / "plots", formats=("svg",))
    assert [path.stem for path in written] == [name for name in SWEPT if name != "update_ratio"]


def test_unknown_names_and_formats_are_refused(table: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'stream_growth'"):
        draw(table, "stream_grwth")
    with pytest.raises(DataError, match=r"\.svg or \.png"):
        save(Figure(), tmp_path / "plot.jpg")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.svg").write_text("old")

    def fail(self: Figure, part: Path, **_: object) -> None:
        part.write_text("half")
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no space"):
        save(Figure(), tmp_path / "a.svg")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.svg": "old"}


def test_importing_touches_neither_pyplot_nor_settings() -> None:
    code = (
        "import sys, matplotlib, normlab.plots; assert 'matplotlib.pyplot' not in sys.modules; "
        "now, before = matplotlib.rcParams, matplotlib.rcParamsOrig; "
        "assert [name for name in before if name != 'backend' and now[name] != before[name]] == []"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
