"""Wikipedia's markup as plain text."""

from __future__ import annotations

import pytest

from dropbench.tasks.data.language.wikipedia import plain_text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''slanted'' [[page|words]] and [[page]]s", "Bold and slanted words and pages"),
        ("A&nbsp;b &amp; c &lt;d&gt; &eacute;", "A b & c <d> é"),
        ("{{Infobox | a = {{nested}} }}\nText{{cite}}.", "Text."),
        ("[[File:Owl.jpg|thumb|200px|An [[owl]]]]An owl.[[Category:Birds|*]]", "An owl."),
        ("One.<ref name=a>A book</ref> Two.<ref name=a />", "One. Two."),
        ("Before\n{| class=wikitable\n! head\n|-\n| cell\n|}\nAfter", "Before\n\nAfter"),
        ("== History ==\n\n\n\nLong   ago", "History\n\nLong ago"),
        ("* first\n* {{x}}\n* second", "first\n\nsecond"),
        ("<math>x^2</math> is a square<!-- a comment -->", "is a square"),
        ("__NOTOC__\nText", "Text"),
        ("[http://example.org a site] and http://example.org", "a site and http://example.org"),
        ("{{only}}\n{{templates}}", ""),
        ("", ""),
        ("an open {{template and [[link", "an open {{template and [[link"),
    ],
)
def test_plain_text(markup: str, text: str) -> None:
    assert plain_text(markup) == text
