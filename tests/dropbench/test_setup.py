"""`make setup`: the lock file, and how uv gets the settings of pip."""

from __future__ import annotations

import re
import runpy
import tomllib

import pytest

from tests.paths import ROOT

settings = runpy.run_path(str(ROOT / ".ci" / "run_uv.py"))["settings"]
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", {"UV_INDEX": ""}),
        ("global.index-url='https://mirror/simple'", {"UV_INDEX": "", "UV_DEFAULT_INDEX": "https://mirror/simple"}),
        (
            ":env:.index-url='https://mine/simple'\nglobal.index-url='https://mirror/simple'",
            {"UV_INDEX": "", "UV_DEFAULT_INDEX": "https://mine/simple"},
        ),
        (
            "global.extra-index-url='file:///a/simple\\nfile:///b/simple'",
            {"UV_INDEX": "file:///a/simple file:///b/simple"},
        ),
        (
            "global.find-links='/wheels https://x/wheels'\ninstall.trusted-host='x y'\nglobal.cert='/ca.crt'",
            {"UV_FIND_LINKS": "/wheels,https://x/wheels", "UV_INSECURE_HOST": "x y", "SSL_CERT_FILE": "/ca.crt"},
        ),
        (
            "global.index-url='https://mine/simple'\nglobal.extra-index-url='file:///a/simple\\nfile:///b/simple'",
            {"UV_INDEX": "https://mine/simple file:///a/simple", "UV_DEFAULT_INDEX": "file:///b/simple"},
        ),
        ("list.format='columns'\nglobal.quiet='1'", {"UV_INDEX": ""}),
    ],
)
def test_uv_gets_the_settings_of_pip(config: str, expected: dict[str, str]) -> None:
    found = settings(config)
    assert found.pop("UV_INDEX_STRATEGY") == "unsafe-best-match"
    assert {"UV_INDEX": ""} | expected == found


def test_the_lock_file_pins_versions_and_names_no_index() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert lines
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [\w .'=!<>*]+)?", line) for line in lines)
    assert not re.search(r"^(nvidia|cuda|triton)", LOCK, re.MULTILINE), "they depend on the build of torch"


def test_the_lock_file_has_every_requirement() -> None:
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    needed = [*PROJECT["project"]["dependencies"], *groups["unresolvable"], *groups["build"]]
    needed += [line for name in extras.keys() - {"all", "trackers"} for line in extras[name]]
    names = {re.split(r"[\[<>=]", line)[0] for line in needed} - {"dropbench"}
    assert not [name for name in sorted(names) if not re.search(rf"^{re.escape(name)}==", LOCK, re.MULTILINE)]
