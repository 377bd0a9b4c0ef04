"""The report in a real browser, from a file and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disc import report
from tests.support import sweeps

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Locator, Page

LONG = "an-experiment-with-a-very-long-name-" * 4


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with long names, unfinished runs and missing ones."""
    root = tmp_path_factory.mktemp("report")
    found = sweeps.experiment(title=LONG, note=LONG, tasks=("hopper", "walker2d", "ant"))
    sweeps.write(root, found)
    rng = np.random.default_rng(0)
    for cell in found.cells():
        height = 1000.0 * (1 + (cell.arm.label == "DISC") + (cell.task == "hopper"))
        if cell.task != "ant":
            noise = rng.normal(size=100)
            sweeps.run(root, cell, lambda s, h=height, n=noise: s * h + 50 * n[: len(s)])
    return report.write(root)


class Opened:
    """A page that records its requests and console messages."""

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        size = {"width": options.pop("width", 1200), "height": 800}
        self.context = browser.new_context(viewport=size, **options)
        self.context.set_offline(True)
        self.requests: list[str] = []
        self.said: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(file.as_uri())

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert not self.said
        assert len(self.requests) == 1
        assert self.requests[0].startswith("file:")


def column(page: Page, index: int, table: int = 0) -> list[str]:
    rows = page.locator("table").nth(table).locator("tbody tr")
    return [row.locator("> *").nth(index).inner_text() for row in rows.all()]


def head(page: Page, name: str) -> Locator:
    return page.locator("table").first.locator("thead th", has_text=name)


def test_table_columns_sort_by_click_and_keyboard(browser: Browser, file: Path) -> None:
    with Opened(browser, file) as page:
        before = column(page, 3)
        head(page, "ours").locator("button").click()
        assert head(page, "ours").get_attribute("aria-sort") == "ascending"
        up = column(page, 3)
        assert up[-2:] == ["–", "–"]
        numbers = [float(text.split(" ")[0].replace(",", "")) for text in up[:-2]]
        assert numbers == sorted(numbers)
        head(page, "ours").locator("button").click()
        assert head(page, "ours").get_attribute("aria-sort") == "descending"
        assert column(page, 3) == [*reversed(up[:-2]), "–", "–"]
        head(page, "arm").locator("button").focus()
        page.keyboard.press("Enter")
        assert head(page, "ours").get_attribute("aria-sort") is None
        assert head(page, "arm").get_attribute("aria-sort") == "ascending"
        assert column(page, 1) == ["DISC"] * 3 + ["PPO"] * 3
        page.keyboard.press("Space")
        assert column(page, 1) == ["PPO"] * 3 + ["DISC"] * 3
        assert sorted(column(page, 3)) == sorted(before)


def test_figure_shows_values_on_hover_and_arrow_keys(browser: Browser, file: Path) -> None:
    with Opened(browser, file) as page:
        panel = page.locator("section#e0 > figure .panel").first
        drawing, readout = panel.locator("svg").first, panel.locator(".readout")
        cursor = drawing.locator(".cursor")
        assert readout.is_hidden()
        box = drawing.bounding_box()
        assert box
        middle = {"x": box["width"] * 0.5, "y": box["height"] * 0.5}
        drawing.hover(position=middle)
        text = readout.inner_text()
        assert "environment steps" in text
        assert text.index("DISC") < text.index("PPO")  # the higher one first
        assert text.count("±") == 2
        assert cursor.evaluate("x => getComputedStyle(x).visibility") == "visible"
        assert readout.locator(".swatch").count() == 2
        page.mouse.move(0, 0)
        assert readout.is_hidden()
        drawing.focus()
        page.keyboard.press("End")
        assert "100,000 environment steps" in readout.inner_text()
        page.keyboard.press("ArrowLeft")
        assert "96,000 environment steps" in readout.inner_text()
        assert "96,000 environment steps: DISC" in str(drawing.get_attribute("aria-valuetext"))
        page.keyboard.press("Home")
        assert "4,000 environment steps" in readout.inner_text()
        page.keyboard.press("Escape")
        assert readout.is_hidden()


def test_figure_shows_values_on_tap(browser: Browser, file: Path) -> None:
    with Opened(browser, file, width=390, has_touch=True, is_mobile=True) as page:
        panel = page.locator("section#e0 > figure .panel").first
        panel.locator("svg").first.tap()
        assert "environment steps" in panel.locator(".readout").inner_text()
        page.locator("h1").tap()
        assert panel.locator(".readout").is_hidden()


def colors(page: Page) -> list[str]:
    return page.evaluate(
        """() => [
            getComputedStyle(document.body).backgroundColor,
            getComputedStyle(document.body).color,
            getComputedStyle(document.querySelector(".curve")).stroke,
            getComputedStyle(document.querySelector("svg text")).fill,
        ]"""
    )


def test_theme_can_be_switched_and_print_is_light(browser: Browser, file: Path) -> None:
    with Opened(browser, file, color_scheme="light") as page:
        light = colors(page)
        assert light[0] == "rgb(255, 255, 255)"
        assert page.locator("#theme").inner_text() == "Dark"
        page.locator("#theme").click()
        toggled = colors(page)
        assert page.locator("#theme").inner_text() == "Light"
        page.emulate_media(media="print")
        assert colors(page) == light  # print is always light
    with Opened(browser, file, color_scheme="dark") as page:
        dark = colors(page)
        assert all(one != other for one, other in zip(light, dark, strict=True))
        assert dark == toggled
        page.locator("#theme").click()
        assert colors(page) == light


@pytest.mark.parametrize("width", [390, 320])
def test_report_fits_a_phone_screen(browser: Browser, file: Path, width: int) -> None:
    with Opened(browser, file, width=width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(x => { x.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.locator(".scroll").last
        assert wide.evaluate("x => x.scrollWidth > x.clientWidth")
        wide.evaluate("x => { x.scrollLeft = 500; }")
        for kind in ("first", "second"):  # the task and arm columns stay visible
            box = wide.locator(f"tbody .{kind}").first.bounding_box()
            assert box
            assert 0 <= box["x"] < width - box["width"]
        for drawing in page.locator(".panel svg").all():
            box = drawing.bounding_box()
            assert box is None or box["x"] + box["width"] <= width
        size = page.evaluate(
            """() => {
                const [svg, text] = ["#e0 > figure svg[role]", "#e0 > figure .tick"]
                    .map((x) => document.querySelector(x));
                return parseFloat(getComputedStyle(text).fontSize)
                    * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            }"""
        )
        assert size >= 8  # font size of a tick label in pixels


def test_labels_stay_inside_their_figures(browser: Browser, file: Path) -> None:
    with Opened(browser, file) as page:
        page.evaluate("document.querySelectorAll('details').forEach(x => { x.open = true; })")
        outside = page.evaluate(
            """() => [...document.querySelectorAll(".panel svg[role] text")].filter((text) => {
                const [inner, outer] = [text, text.ownerSVGElement]
                    .map((x) => x.getBoundingClientRect());
                return inner.left < outer.left - 1 || inner.right > outer.right + 1
                    || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
            }).map((text) => text.textContent)"""
        )
        assert outside == []


def test_report_is_readable_without_javascript(browser: Browser, file: Path) -> None:
    with Opened(browser, file, java_script_enabled=False) as page:
        assert page.locator("#theme").is_hidden()
        assert page.locator("thead button").count() == 0
        rows = page.locator("table").first.locator("tbody tr")
        assert rows.count() == 6
        assert "not run yet" in rows.last.inner_text()
        assert page.locator("#e0 > figure svg[role=img] .curve").first.is_visible()
        page.locator("summary", has_text="The curves as numbers").first.click()
        assert page.locator("table", has_text="at 100 %").first.is_visible()


def test_injected_scripts_do_not_run(browser: Browser, file: Path) -> None:
    """The content security policy blocks scripts that got past the escaping."""
    bad = "<main><script>document.title = 'bad'</script><p onclick=\"document.title = 'bad'\">x</p>"
    other = file.with_name("other.html")
    text = file.read_text(encoding="utf-8").replace("<main>", bad)
    other.write_text(text.replace("<p ", "<img src='https://example.org/x.png'><p ", 1))
    opened = Opened(browser, other)
    opened.page.locator("main > p[onclick]").click()
    assert opened.page.title().startswith("Report on")
    assert opened.page.locator("thead button").count() > 0  # its own script runs
    refused = [text for text in opened.said if "Content Security Policy" in text]
    assert len(refused) == len(opened.said) == 3
    opened.context.close()
