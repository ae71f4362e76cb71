"""`Check`: the findings about a model, as text, as a table in a notebook, and as rows for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal, NamedTuple

State = Literal["ok", "fails", "missing", "absent", "unchecked"]


class Finding(NamedTuple):
    """A checked item.

    Attributes:
        what: the item.
        state: ok; fails, for a model; missing (something will not work) or absent (most users do not need it), for a
            machine; unchecked.
        detail: what was found.
    """

    what: str
    state: State
    detail: str


@dataclass(frozen=True)
class Check:
    """The result of `dropbench.check`; `str` and `repr` are a short table, and a notebook shows it as HTML.

    Attributes:
        title: the regularizer and the model.
        findings: one per question, and one per site with which something is wrong.
        slowdown: time of a training step by that without the regularizer; NaN if it could not be measured.
    """

    title: str
    findings: tuple[Finding, ...]
    slowdown: float = float("nan")

    @property
    def ok(self) -> bool:
        """True if nothing fails."""
        return all(finding.state != "fails" for finding in self.findings)

    def __str__(self) -> str:
        what, state = (max((len(finding[column]) for finding in self.findings), default=0) for column in (0, 1))
        lines = (f"  {finding.what:{what}}  {finding.state:{state}}  {finding.detail}" for finding in self.findings)
        return "\n".join([self.title, *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = ("".join(f"<td>{escape(text)}</td>" for text in finding) for finding in self.findings)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{escape(self.title)}</caption>{body}</table>"
