"""Jinja's templates with everything escaped, and the scripts and styles of pages."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from db.report.text import cut

FOLDER = Path(__file__).parent.parent / "templates"


def _harmless(value: Any) -> Any:
    """What every ``{{ … }}`` goes through before it is escaped."""
    if value is None:
        return ""
    return cut(value) if type(value) is str else value


def script_json(content: Any) -> Markup:
    """JSON that ends no script element whatever is in it."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def environment() -> Environment:
    """The templates; a name that is not given is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"cut": cut, "script_json": script_json}
    return made


def render(template: str, **values: Any) -> str:
    """A template filled in."""
    return environment().get_template(template).render(**values)


@cache
def asset(name: str) -> str:
    """A script or a style sheet of ours."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def plotting() -> str:
    """The JavaScript of Vega, Vega-Lite and Vega-Embed, about 0.9 MB; takes seconds, once a process."""
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")
    return made


def digest(content: str) -> str:
    """What a Content-Security-Policy calls an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
