"""Sphinx's settings for the documentation; `make docs` builds it from the Markdown files in this folder."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in (".", "entrypoints", "tests/data")]

from make_docs import with_site_parts  # noqa: E402

project = "launch"
html_title = "launch"
author = "The sagemaker-launch authors"

extensions = ["myst_parser"]
myst_heading_anchors = 3  # the addresses that GitHub gives headings
highlight_language = "text"  # of blocks without a language, which would be taken for Python
smartquotes = False  # --set is an option
suppress_warnings = ["misc.highlighting_failure"]  # wrong examples of problem codes

exclude_patterns = ["skills"]  # for agents

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
pygments_dark_style = "github-dark"


def setup(app: Sphinx) -> None:
    """Write the parts into the pages that the repository does not keep."""
    app.connect("source-read", lambda _app, _page, source: source.__setitem__(0, with_site_parts(source[0])))
