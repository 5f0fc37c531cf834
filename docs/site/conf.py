"""Settings of Sphinx for `make docs`; sources.py makes the folder of pages that it reads."""

from metastore.version import __version__

project = "metastore"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"metastore {__version__}"
html_static_path: list[str] = []
exclude_patterns = ["examples/*"]

myst_heading_anchors = 4  # each heading has the anchor that GitHub gives it; a link to one that is missing fails
# conflict-matrix.md goes from # to ###; some examples have a … or a $name, which no lexer knows
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
