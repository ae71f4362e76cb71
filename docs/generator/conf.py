"""Configuration of the documentation site, which `make docs` builds with Sphinx, without a network.

The source folder is the repository, so that README.md and the relative links of every page are the same here and on a
forge. Pages stay plain Markdown: the table of contents and the API reference are added while they are read.
"""

from __future__ import annotations

import pydoc
import re
import tomllib
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[2]

project = "DropBench"
author = "The DropBench authors"
copyright = author
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md", "docs/**.md"]
exclude_patterns = [".*", "build", "data", "runs", "site"]
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]
html_math_renderer = "mathml"

html_theme = "furo"
html_title = f"DropBench {release}"
html_copy_source = False
html_show_sphinx = False

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "model_config"}
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_custom_sections = [("Class attributes", "params_style")]

CONTENTS = {
    "Use": "docs/installation docs/tutorial docs/words docs/tasks docs/data docs/fine-tuning"
    " docs/reading-tables docs/results docs/selection docs/predictions docs/analyses docs/python docs/api docs/cluster",
    "Extend": "docs/choose docs/generated/gallery docs/regularizers docs/your-regularizer docs/your-model"
    " docs/training-loops docs/generated/models docs/plug-ins docs/comparison",
    "Trust": "docs/generated/leaderboard docs/findings docs/parity docs/recipes"
    " docs/generated/recipe-keys benchmarks/RESULTS docs/design"
    " CONTRIBUTING CHANGELOG",
}
"""The navigation: caption → pages."""
NAME = re.compile(r"^### `([\w.]+)`\n\n(.*?)\n(?=\n#|\Z)", re.MULTILINE | re.DOTALL)


def add_contents(app: Any, page: str, source: list[str]) -> None:
    """Add the navigation to README.md and docs/tasks.md, and the reference to each name of docs/api.md."""
    if page == root_doc:
        source[0] += "".join(map(toctree, CONTENTS, CONTENTS.values()))
    elif page == "docs/tasks":
        source[0] += toctree("Tasks", "tasks/*")
    elif page == "docs/api":
        source[0] = NAME.sub(reference, source[0])


def toctree(caption: str, pages: str) -> str:
    """Return a hidden table of contents."""
    return f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n" + pages.replace(" ", "\n") + "\n```\n"


def reference(heading: re.Match[str]) -> str:
    """Return a heading of docs/api.md, its text, and what autodoc knows of the name."""
    path = heading[1] if "." in heading[1] else f"dropbench.{heading[1]}"
    value = pydoc.locate(path)
    if isinstance(value, type):
        directive = f"autoclass:: {path}\n   :members:\n   :show-inheritance:"
    elif callable(value):
        directive = f"autofunction:: {path}"
    else:
        directive = f"py:data:: {path}\n   :type: {type(value).__name__}"
    return f"{heading[0]}\n```{{eval-rst}}\n.. {directive}\n```\n"


def name_fields(app: Any, what: str, name: str, value: Any, options: Any, signature: str, returns: str) -> Any:
    """Return the signature of a pydantic model as in its source; that of the class has validators in it."""
    if what != "class" or not (fields := getattr(value, "model_fields", None)):
        return None
    types = {key: text for base in value.__mro__[::-1] for key, text in vars(base).get("__annotations__", {}).items()}
    return f"(*, {', '.join(f'{field}: {types[field]}' for field in fields)})", None


def typeset(writer: Any, node: Any) -> None:
    """Write a formula as MathML, which needs no script."""
    block = node.tagname == "math_block"
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div style="overflow-x: auto">{formula}</div>' if block else formula)
    raise SkipNode


def write_index(app: Any, error: Exception | None) -> None:
    """Make the front page the site's index."""
    if error is None:
        page = (Path(app.outdir) / "README.html").read_text(encoding="utf-8")
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    """Register the functions above."""
    app.add_lexer("csv", TextLexer)  # Pygments has none
    app.add_html_math_renderer("mathml", (typeset, None), (typeset, None))
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-signature", name_fields)
    app.connect("build-finished", write_index)
