"""Jinja templates with autoescaping, and the scripts and style sheets of pages."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.page.details import duration

FOLDER = Path(__file__).parent.parent / "templates"


def _sanitize(value: Any) -> Any:
    """Shorten and sanitize the value of every ``{{ … }}`` before it is escaped."""
    if value is None:
        return ""
    return cut(value) if type(value) is str else value


def script_json(content: Any) -> Markup:
    """Return JSON that cannot end a script element, whatever its content."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def environment() -> Environment:
    """Return the environment of the templates; an undefined name is an error."""
    jinja = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_sanitize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"cut": cut, "duration": duration, "script_json": script_json}
    return jinja


def render(template: str, **values: Any) -> str:
    """Return a rendered template."""
    return environment().get_template(template).render(**values)


@cache
def asset(name: str) -> str:
    """Return a script or style sheet of this package."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def vega_bundle() -> str:
    """Return the JavaScript of Vega, Vega-Lite and Vega-Embed, about 0.9 MB; takes seconds, once per process."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;"))


def digest(content: str) -> str:
    """Return the source expression of an inline script or style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
