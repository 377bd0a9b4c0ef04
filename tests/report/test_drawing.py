"""The parts of a report: text, numbers, curves, colours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from disc import report
from disc.report import markup, svg, tuning
from disc.study.spec import Figure
from tests.support import sweeps
from tests.support.sweeps import written


def test_markup_escapes_text_and_data() -> None:
    assert markup.tag("p", "a<b", title='"&') == '<p title="&quot;&amp;">a&lt;b</p>'
    assert markup.tag("td", markup.Html("<b>"), class_="x", hidden=False) == (
        '<td class="x"><b></td>'
    )
    text = markup.data(["</script>", "<!--"])
    assert text.count("<") == 2
    assert json.loads(text[text.index(">") + 1 : text.rindex("<")]) == ["</script>", "<!--"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(246435.89, "246,436"), (314.29, "314.3"), (-62.11, "−62.11"), (8.89, "8.890"),
     (0.25, "0.250"), (0.00012, "0.00012"), (0.0, "0.000")],
)  # fmt: skip
def test_numbers_are_formatted_by_magnitude(value: float, text: str) -> None:
    assert markup.measured(value).shown == text


def test_spread_has_as_many_decimals_as_its_mean() -> None:
    assert markup.measured(1630.6, 38.83).shown == "1,631 ± 39"
    assert markup.measured(8.89, 25.81).shown == "8.89 ± 25.81"


# Drawing


def test_axis_ticks_are_round_numbers() -> None:
    assert svg.ticks(0, 1_000_000) == [0, 200_000, 400_000, 600_000, 800_000, 1_000_000]
    assert svg.ticks(-62, 8.9) == [-60, -40, -20, 0]
    assert svg.ticks(1.0, 1.23) == [1.0, 1.05, 1.1, 1.15, 1.2]
    assert svg.ticks(3.0, 3.0) == [3.0]
    values = (2_500_000, -6000, 301_056, 0.05, 0)
    assert [svg.short(x) for x in values] == ["2.5M", "−6k", "301.1k", "0.05", "0"]


def test_long_curves_are_thinned() -> None:
    kept = svg.thin(5000)
    assert len(kept) == svg.POINTS
    assert (kept[0], kept[-1]) == (0, 4999)
    assert svg.thin(3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("metrics", [("eval/return",), ("eval/return", "is/alpha")])
@pytest.mark.parametrize("arms", [("DISC",), ()])
def test_curves_of_a_figure_have_distinct_labels_and_styles(
    tmp_path: Path, together: bool, metrics: tuple[str, ...], arms: tuple[str, ...]
) -> None:
    """Every curve has its own label and style."""
    figure = Figure("F", metric=metrics, together=together, arms=arms, line=1.2)
    found = sweeps.experiment(figures=(figure,), seeds=(0, 1), table=False)
    sweeps.write(tmp_path, found)
    for cell in found.cells():
        sweeps.run(tmp_path, cell, metrics=["is/alpha"])
    drawn = [json.loads(text)["lines"] for text in written(tmp_path).scripts[:-1]]
    curves = (2 if together else 1) * (1 if arms else 2) * len(metrics)
    assert [len(lines) for lines in drawn] == [curves] * (1 if together else 2)
    for lines in drawn:
        assert len({line["label"] for line in lines}) == curves
        if curves < 8:  # styles tell apart two of task, arm and metric, not all three
            assert len({line["style"] for line in lines}) == curves
        assert all(line["seeds"] == 2 for line in lines)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(color: str) -> float:
        parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_have_enough_contrast(scheme: int) -> None:
    text = (Path(report.__file__).parent / "page.css").read_text(encoding="utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", text)
    colors = {name: pair[scheme] for name, *pair in found}
    for name in ("text", "quiet", "link", "good", "fair", "poor"):
        for ground in ("ground", "raised"):
            assert contrast(colors[name], colors[ground]) >= 4.5, (name, ground)
    assert contrast(colors["text"], colors["warn"]) >= 7
    curves = [name for name in colors if re.fullmatch(r"c\d", name)]
    assert len(curves) == svg.COLORS
    for name in curves:
        assert contrast(colors[name], colors["ground"]) >= 4.5, name


def test_importance_bars_are_proportional_and_named() -> None:
    drawn = str(tuning.bars({"learning_rate": 0.6, "horizon": 0.3, "gamma": 0.0}))
    widths = [float(x) for x in re.findall(r'<rect[^>]* width="([\d.]+)"', drawn)]
    assert widths[1] == pytest.approx(0.5 * widths[0], abs=0.1)
    assert widths[2] == 1.0  # still visible
    assert [x in drawn for x in ("learning_rate", "horizon", "gamma", "0.60")] == [True] * 4
