"""How Sphinx builds the site. docs/site/build.py writes the pages that it reads."""

from mpijax.version import __version__ as release

project = "mpijax"
author = "the mpijax developers"
copyright = author

extensions = ["myst_parser", "sphinx.ext.viewcode", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
nitpicky = True

myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
viewcode_follow_imported_members = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
highlight_language = "none"

html_theme = "furo"
html_title = f"mpijax {release}"
html_copy_source = False
html_show_sphinx = False
