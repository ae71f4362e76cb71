"""Files next to README.md and the containers agree with the package, and docs/words.md with the documents."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.paths import DOCS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAX_WORDS = 45
CONTAINERS = [(DOCS / "containers" / name).read_text(encoding="utf-8") for name in ("Dockerfile", "dropbench.def")]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(reference["url"].rpartition("/")[2] in readme for reference in citation["references"])


def test_images_have_the_package_and_a_python_that_it_supports() -> None:
    copied = [
        sorted(word for line in re.findall(r"^COPY (.*) \S+$", CONTAINERS[0], re.MULTILINE) for word in line.split()),
        sorted(re.findall(r"^    (\S+) /opt/dropbench/$", CONTAINERS[1], re.MULTILINE)),
    ]
    assert copied[0] == copied[1]
    assert [pattern for pattern in copied[0] if not any(ROOT.glob(pattern))] == []
    packages = re.findall(r"^include = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name.strip(' "*') for name in packages[0].split(",")} <= {*copied[0]}
    for text in CONTAINERS:
        [version] = re.findall(r"python:(3\.\d+)-slim", text)
        assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_words_are_few_and_used() -> None:
    page = DOCS / "words.md"
    words = re.findall(r"^\| ([a-z -]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = [word for word in words if word not in ("word", "---")]
    assert 30 < len(words) <= MAX_WORDS
    assert len({*words}) == len(words)
    others = [ROOT / "README.md", *(other for other in DOCS.glob("*.md") if other != page)]
    text = "\n".join(other.read_text(encoding="utf-8").lower() for other in others)
    assert [word for word in words if not re.search(rf"\b{word}(s|es)?\b", text.replace("\n", " "))] == []
