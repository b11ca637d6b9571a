"""Configuration of the documentation.

    python -m sphinx -b html -W --keep-going -n docs docs/_build

Needs ``pip install -e ".[docs]"``. Neither building nor reading it needs a network connection.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from gpgc_dask import __version__  # noqa: E402
from gpgc_dask.results.columns import markdown_table  # noqa: E402

project = "gpgc_dask"
author = "the gpgc_dask authors"
project_copyright = "the gpgc_dask authors. Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    # In _ext/.
    "commands",
]
exclude_patterns = ["_build", "_ext", "*.py", "**/.ipynb_checkpoints"]

# -- pages -------------------------------------------------------------------------------------
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_enable_extensions += ["substitution"]
myst_substitutions = {"ranking_columns": markdown_table()}
myst_heading_anchors = 3
# Notebooks are stored with their outputs: they are executed by their own tests.
nb_execution_mode = "off"
# Keep the two hyphens of --resume.
smartquotes = False

# -- the API -----------------------------------------------------------------------------------
autodoc_member_order = "bysource"
# Docstrings are numpydoc and describe the types; annotations would repeat them at length.
autodoc_typehints = "none"
autosummary_generate = False
numpydoc_show_class_members = False
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
add_module_names = False
toc_object_entries_show_parents = "hide"

nitpick_ignore_regex = [
    # Classes of other projects, whose pages cannot be looked up without a network connection.
    ("py:.*", r"(dask|distributed|numpy|pandas|sklearn|xarray)\..*"),
]

# -- the look ----------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "gpgc_dask"
# One file that renders formulas, including the glyphs.
MATHJAX = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
html_static_path = ["_static", str(MATHJAX / "static" / "mathjax" / "tex-svg.js")]
mathjax_path = "tex-svg.js"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "gpgc_dask"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "getting-started": [], "changelog": []}
copybutton_exclude = ".linenos, .gp, .go"

# -- notebooks ---------------------------------------------------------------------------------
EXAMPLES = HERE.parent / "examples"
NOTEBOOKS = HERE / "notebooks"


def copy_notebooks(app: Any) -> None:
    """Copy examples/*.ipynb into the source folder, with links that work on the site."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for old in NOTEBOOKS.glob("*.ipynb"):
        if not (EXAMPLES / old.name).exists():
            old.unlink()
    for path in EXAMPLES.glob("*.ipynb"):
        text = path.read_text().replace("](../deploy/README.md", "](../kubernetes.md")
        text = text.replace("](../docs/", "](../")
        target = NOTEBOOKS / path.name
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def link_notebooks(app: Any, page: str, source: list[str]) -> None:
    """Let links to ../examples/NAME.ipynb, which GitHub understands, lead to the copies."""
    folder = "../" * page.count("/") + NOTEBOOKS.name
    source[0] = re.sub(r"(?<=\]\()[./]+examples/(?=\w+\.ipynb)", f"{folder}/", source[0])


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", copy_notebooks)
    app.connect("source-read", link_notebooks)
