"""Run uv with the package index that pip is configured for: ``python run_uv.py pip install …``.

uv reads neither pip's configuration files nor its environment variables. Variables of uv that are set take precedence.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

VARIABLES = {
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}
"""Options of pip: uv's variable, and the separator of its values."""


def settings(config: str) -> dict[str, str]:
    """Return uv's variables for the output of ``pip config list``."""
    options: dict[str, list[str]] = {}
    for line in sorted(config.splitlines(), key=lambda line: line.startswith(":env:")):  # which take precedence
        key, equals, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if equals and section in ("global", "install", ":env:"):
            options[option] = ast.literal_eval(value).split()
    variables = {name: join.join(options[option]) for option, (name, join) in VARIABLES.items() if option in options}
    # pip merges its indexes. uv takes a version from the first index that has it, and its default index is the last.
    indexes = [*options.get("index-url", []), *options.get("extra-index-url", [])]
    if "index-url" in options:
        variables["UV_DEFAULT_INDEX"] = indexes.pop()
    return variables | {"UV_INDEX": " ".join(indexes), "UV_INDEX_STRATEGY": "unsafe-best-match"}


def main() -> None:
    """Replace this process by uv, for the environment of this Python."""
    list_config = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    config = subprocess.run(list_config, capture_output=True, text=True, check=True).stdout
    environment = {**settings(config), **os.environ, "VIRTUAL_ENV": sys.prefix}
    uv = os.path.join(os.path.dirname(sys.executable), "uv")  # noqa: PTH118, PTH120
    os.execve(uv, [uv, *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
