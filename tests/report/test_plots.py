"""Figures of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from disc.report import plots
from disc.types import DiscError


def write(path: Path, **columns: list[float]) -> Path:
    """Write a progress file with these columns."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns).replace("__", "/"), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_diagnostics_show_several_runs_in_one_figure(tmp_path: Path) -> None:
    ours = write(
        tmp_path / "ours.csv",
        step=[10, 20, 30],
        is__rho_last=[1.1, 1.2, 1.3],
        is__vanished=[0.0, 0.0, 0.0],
        is__alpha=[1.0, 2.0, 4.0],
    )
    theirs = write(tmp_path / "theirs.csv", step=[10, 20], is__rho_last=[1.5, 1.6])
    out = tmp_path / "weights.svg"
    plots.diagnostics([ours, theirs], out)
    text = out.read_text(encoding="utf-8")
    for shown in ("is/rho_last", "is/vanished", "is/alpha"):
        assert f"<!-- {plots.DIAGNOSTICS[shown]}" in text
    assert text.count("<!-- ours -->") == 3
    assert text.count("<!-- theirs -->") == 1


def test_diagnostics_without_importance_weights_raise(tmp_path: Path) -> None:
    run = write(tmp_path / "td3.csv", step=[10, 20], train__q=[1.0, 2.0])
    with pytest.raises(DiscError, match="no importance weights"):
        plots.diagnostics([run], tmp_path / "weights.png")
    assert not (tmp_path / "weights.png").exists()


@pytest.mark.parametrize("draw", [plots.diagnostics, plots.curves])
def test_figures_other_than_png_or_svg_raise(tmp_path: Path, draw: object) -> None:
    with pytest.raises(DiscError, match=r"\.png or \.svg"):
        draw([tmp_path], tmp_path / "figure.jpg")  # type: ignore[operator]
