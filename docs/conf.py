"""Sphinx's settings for the documentation; `make docs` builds it from the Markdown files in this folder."""

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
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
pygments_dark_style = "github-dark"
