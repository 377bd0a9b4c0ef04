"""The documentation site: `sphinx-build -W -c docs . build/site`, from the root of the repository.

The root is the source, so links between pages, results and code are the same here and on disk.
Pages stay plain Markdown. What only the site needs is added here while they are read: the menu,
the directives of the API reference, and equations as MathML, which needs no network.
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import shutil
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from typing import Any

import ziamath
from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.search.en import SearchEnglish
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.inspect import TypeAliasForwardRef

from disc import __version__
from disc.learning.config import DEFAULT_PRESET

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
FONT = "STIXTwoMath-Regular.ttf"  # few machines have a font for equations
OPENING = r"<mo[^>]*>(?:&#x0005B;|&#x00028;|&#x0002C;|[\[(,])</mo>"
NARROW = 'form="prefix" lspace="0.17em" rspace="0.1em"'
MENU = {
    "Start": ["docs/README", "docs/choosing", "examples/README", "docs/from-sb3"],
    "Algorithms": [
        "docs/disc",
        "docs/ppo",
        "docs/ppo-amber",
        "docs/trpo",
        "docs/acktr",
        "docs/trust-pcl",
        "docs/ddpg",
        "docs/td3",
        "docs/sac",
        "docs/sql",
        "docs/discrete-actions",
    ],
    "Use": [
        "docs/deployment",
        "docs/zoo",
        "docs/export",
        "docs/tracking",
        "docs/sweeps",
        "docs/tune",
        "docs/cluster",
        "docs/performance",
        "docs/promises",
    ],
    "Reference": [
        "docs/api",
        "docs/data-flow",
        "docs/reproduction",
        "results/README",
        "CONTRIBUTING",
        "SECURITY",
        "CHANGELOG",
    ],
}

project = "disc"
version = release = __version__
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "examples/*.md", "results/*.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"disc {__version__}"
html_math_renderer = "mathml"
html_static_path = ["site.css", str(Path(ziamath.__file__).parent / "fonts" / FONT)]
html_css_files = ["site.css"]
pygments_style = "default"
html_copy_source = False
html_show_copyright = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # the anchors that GitHub gives to headings

default_role = "py:obj"  # of `names` in docstrings; plain code if there is no such name
add_module_names = False
autodoc_default_options = {"members": True}
autodoc_type_aliases = {
    name: name for name in ("Bools", "Callback", "Floats", "Measured", "Metrics", "Source")
}
# Sphinx shows these names by themselves, but not yet inside tuple[…].
TypeAliasForwardRef.__repr__ = lambda self: self.name  # type: ignore[method-assign]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Fields", "params_style"), ("Options", "params_style")]


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page what only the site needs."""
    if page == root_doc:
        for caption, pages in MENU.items():
            listed = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
    if not source[0].startswith("# "):  # a table that a command wrote
        source[0] = f"---\norphan: true\n---\n\n# {page}\n\n{source[0]}"
    directive = r"<!-- (auto\w+) (.+?) -->\n"
    source[0] = re.sub(directive, r"```{eval-rst}\n.. \1:: \2\n```\n", source[0])


def complete_docstring(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Add options and fields to the docstrings of classes; they are plain text with `code`."""
    if what == "class" and hasattr(found, "algorithm"):
        lines += ["", "Options:", *options_of(found.algorithm.Config), ""]
    elif what == "class" and (hasattr(found, "_fields") or dataclasses.is_dataclass(found)):
        lines += ["", "Fields:", *fields_of(found), ""]
    elif what in ("property", "attribute", "data"):
        lines[:0] = ["..", ""]  # or napoleon takes what is before a colon for the type
    for index, line in enumerate(lines):
        text = re.split(r"(`+.+?`+|^ *\*+)", line)  # every second part is code, or `*args`
        text[::2] = [re.sub(r"[|*]", r"\\\g<0>", part) for part in text[::2]]
        # Only classes and dotted names are links: `threads` is mostly a word, not Agent.threads.
        text[1::2] = [re.sub(r"^`([a-z][^.`]*)`$", r"``\1``", part) for part in text[1::2]]
        lines[index] = "".join(text)


def options_of(config: Any) -> Iterator[str]:
    """The options of an algorithm, with their types, defaults and help."""
    for field in dataclasses.fields(config):
        paper = config.paper.get(field.name, field.default)
        presets = {"recommended": field.default, "paper": paper}
        default = presets[DEFAULT_PRESET]
        facts = f"{field.type}, {default!r} by default"
        for preset, value in presets.items():
            facts += "" if value == default else f", {value!r} with the preset {preset}"
        yield f"    {field.name} ({facts}): {help_of(config, field.name)}"


def fields_of(record: type) -> list[str]:
    """The fields of a record, with the comments beside them."""
    lines = inspect.getsource(record).splitlines()
    found = (re.match(r"    (\w+): ([^#]+?)(?: = [^#]+?)?(?:  # (.+))?$", line) for line in lines)
    hidden = ("ClassVar", "init=False")
    shown = (x for x in found if x and not any(word in x[0] for word in hidden))
    return [f"    {x[1]} ({x[2]}): {x[3] or ''}" for x in shown]


def skip(app: Sphinx, what: str, name: str, found: Any, skipped: bool, options: Any) -> bool | None:
    """Fields of records are listed with their comments; an agent's algorithm is its name."""
    field = type(found).__name__ == "_tuplegetter" or name in ("algorithm", "rng")
    return True if field else None


def hide_signature(app: Sphinx, what: str, name: str, found: Any, *_: Any) -> Any:
    """A protocol is never called."""
    return ("", None) if what == "class" and getattr(found, "_is_protocol", False) else None


def help_of(config: type, option: str) -> str:
    """The docstring below a field, of the class that defines it last."""
    for kind in config.__mro__:
        found = ModuleAnalyzer.for_module(kind.__module__).find_attr_docs()
        if (kind.__name__, option) in found:
            return " ".join(found[kind.__name__, option]).strip()
    raise LookupError(f"{config} has no help for {option}")


class FileLinks(SphinxTransform):
    """Links to files and folders that are no pages lead to copies of them."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        here = Path(self.document["source"]).parent
        for kind in (addnodes.download_reference, addnodes.pending_xref):
            for link in list(self.document.findall(kind)):
                target = (here / link["reftarget"]).resolve()
                folder = link.get("reftype") == "myst" and target.is_dir()
                if not folder and kind is addnodes.pending_xref:
                    continue  # a page or a name, which Sphinx finds
                path = target.relative_to(ROOT).as_posix()
                linked(self.env).setdefault(self.env.docname, set()).add(path)
                uri = relpath(target, here) + ("/index.html" if folder else "")
                text = (nodes.inline("", "", *child.children) for child in link.children)
                link.replace_self(nodes.reference("", "", *text, refuri=uri))


def linked(env: Any) -> dict[str, set[str]]:
    """The files and folders to which each page links."""
    if not hasattr(env, "linked_files"):
        env.linked_files = {}
    return env.linked_files


def forget(app: Sphinx, env: Any, page: str) -> None:
    """A page is read again, or was removed."""
    linked(env).pop(page, None)


def folder_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Pages that list the files of linked folders; copies all linked files."""
    for path in sorted(set().union(*linked(app.env).values())):
        source, copy = ROOT / path, Path(app.outdir, path)
        if not source.is_dir():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            continue
        shutil.copytree(source, copy, dirs_exist_ok=True)
        files = sorted(x.relative_to(source).as_posix() for x in source.rglob("*") if x.is_file())
        items = (f'<li><a href="{html.escape(x)}">{html.escape(x)}</a></li>' for x in files)
        body = f"<h1>{path}</h1><ul>{''.join(items)}</ul>"
        yield f"{path}/index", {"title": path, "body": body}, "page.html"


class Words(SearchEnglish):
    """The search also knows words with hyphens, such as V-trace and PPO-AMBER."""

    js_splitter_code = (
        r"var splitQuery = (query) => query.match(/[\p{L}\p{N}_]+(-[\p{L}\p{N}_]+)*/gu) ?? [];"
    )

    def split(self, text: str) -> list[str]:
        return super().split(text) + re.findall(r"\w+(?:-\w+)+", text)


def finish(app: Sphinx, error: Exception | None) -> None:
    """The first page has two names."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def write_math(writer: Any, node: nodes.Element) -> None:
    """An equation as MathML, which browsers show without a script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    text = node.astext().replace(r"\arg", r"\mathrm{arg}")
    shown = convert(text, display=display)
    # Spaces as in TeX: around min, log and the like; none beside the bars of |x|, or after a sign.
    shown = re.sub(r"<(m[io])>([a-z]{2,})</\1>", rf"<mo {NARROW}>\2</mo>", shown)
    shown = shown.replace("<mo>&#x0007C;</mo>", '<mo lspace="0" rspace="0">|</mo>')
    shown = re.sub(rf"({OPENING})<mo>&#x02212;</mo>", r'\1<mo form="prefix">−</mo>', shown)
    if "\\" in shown:
        logger.warning("an equation has a LaTeX command that is unknown: %s", text, location=node)
    writer.body.append(f'<div class="math">{shown}</div>' if display == "block" else shown)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", complete_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-skip-member", skip)
    app.connect("env-purge-doc", forget)
    app.connect("html-collect-pages", folder_pages)
    app.connect("build-finished", finish)
    app.add_search_language(Words)
    app.add_transform(FileLinks)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    return {"parallel_read_safe": False, "parallel_write_safe": True}
