"""The documentation site: its build, its links, and its search in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from filelock import FileLock
from playwright.sync_api import Browser

import disc

pytest.importorskip("sphinx")
ROOT = Path(__file__).parent.parent
COMMAND = "sphinx-build -W -c docs . build/site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the documented command in another folder; once for all workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "site.lock"):
        if not (folder / "site.log").exists():
            done = subprocess.run(
                [sys.executable, "-m", "sphinx", *COMMAND.split()[1:-1], str(folder / "site")],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            (folder / "site.log").write_text(f"{done.returncode}\n{done.stderr}", encoding="utf-8")
        assert (folder / "site.log").read_text(encoding="utf-8").strip() == "0"
    return folder / "site"


class Page(HTMLParser):
    """The links, the anchors and the text of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.update(filter(None, [found.get("id")]))
        self.links += filter(None, [found.get("href"), found.get("src")])

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """The pages by their paths; files that the site only copies are no pages."""
    paths = [x.relative_to(site).as_posix() for x in site.rglob("*.html")]
    return {x: Page(site / x) for x in paths if x != "docs/report.html"}


def test_documented_command_builds_the_site() -> None:
    assert COMMAND in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "build/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


def test_every_markdown_page_is_in_the_site(pages: dict[str, Page]) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.stem}.html" in pages


def test_links_within_the_site_resolve(site: Path, pages: dict[str, Page]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links:
            path, anchor = urlsplit(urljoin(name, link)).path, urlsplit(link).fragment
            if urlsplit(link).scheme:
                continue
            target = unquote(path) if urlsplit(link).path else name
            missing = not (site / target).is_file()
            if missing or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append((name, link))
    assert not broken


def test_site_needs_no_other_server(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert 'src="http' not in text, file
        assert 'rel="stylesheet" type="text/css" href="http' not in text, file


def test_equations_become_mathml(site: Path) -> None:
    text = (site / "docs" / "disc.html").read_text(encoding="utf-8")
    assert text.count("<math ") > 50
    assert "$$" not in text


def test_interface_page_has_every_public_name(pages: dict[str, Page]) -> None:
    page = pages["docs/api.html"]
    names = {f"disc.{name}" for name in disc.__all__} - {"disc.__version__", "disc.equations"}
    modules = {f"module-disc.equations.{name}" for name in disc.equations.__all__}
    assert names | modules | {"disc.Agent.learn", "disc.equations.clipping.joint_clip"} <= (
        page.anchors
    )
    text = " ".join(page.text.split())
    assert "epsilon (float, 0.2 by default) – Clipping factor ε of the joint ratio ρ_t" in text
    assert "alpha_rule" in text  # an option of DISC
    assert "observation (Floats) – (N, S) raw" in text  # a field of Rollout
    for mistake in ("Alias for field", "ForwardRef", "dtype[float32]", "object at 0x"):
        assert mistake not in text


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_search_and_equations_work_in_a_browser(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))

    page.goto(f"{address}/index.html")
    box = page.locator("input[name=q]").first
    box.fill("V-trace")
    box.press("Enter")
    results = page.locator("#search-results li > a")
    page.locator(".search-summary", has_text="finished").wait_for()  # results arrive one by one
    page.locator("#search-results li", has_text="GAE with V-trace").first.wait_for()
    titles = results.all_inner_texts()
    assert "DISC" in titles
    assert "ACKTR" not in titles  # has a V and a trace, but no V-trace

    page.locator("#search-results li > a", has_text="DISC").first.click()
    page.locator("h1", has_text="DISC").wait_for()
    box = page.locator("div.math math").first.bounding_box()
    assert box
    assert box["height"] > 20
    page.wait_for_function("document.fonts.check('16px \"STIX Two Math\"')")

    page.goto(f"{address}/docs/tracking.html")
    page.locator("a", has_text="column names").click()
    page.wait_for_url("**/data-flow.html#*")
    heading = page.locator(page.evaluate("location.hash")).locator("h2, h3").first
    assert "progress.csv" in heading.inner_text()
    assert all(url.startswith(address) for url in requests)
    assert not errors
    page.close()
