"""Weights by name: repositories of the Hugging Face Hub, in the cache of its library.

A name is fetched when trials are queued (`fetch`), and from then on only read from the cache (`cached`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from dropbench.harness.errors import InputError

PREFIXES = ("hf:", "timm:")
NAME = re.compile(r"(?P<prefix>hf|timm):(?P<repo>(?:[\w.-]+/)?[\w.-]+?)(?:@(?P<revision>[\w./-]+))?")
CONFIGURATION = (
    "config.json", "preprocessor_config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "spiece.model", "sentencepiece*.model",
)  # fmt: skip
WEIGHTS = (
    ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"),
)
"""Files of the weights, in order of preference: a repository's files of the first kind that it has are read."""


@dataclass(frozen=True)
class HubWeights:
    """The commit of a repository, and the folder of its files in the cache.

    Attributes:
        name: such as ``hf:org/name@0123…``, with all 40 digits of the commit.
        folder: has the `files`, and maybe others that other programs fetched.
        files: paths of configuration, tokenizer and weights, sorted.
    """

    name: str
    folder: Path
    files: tuple[Path, ...]


def is_hub_name(text: str) -> bool:
    """Return whether a text names weights by ``hf:`` or ``timm:``, instead of a path."""
    return text.startswith(PREFIXES)


@lru_cache
def fetch(text: str) -> HubWeights:
    """Fetch weights by name into the cache, once per process; without a network, those in the cache are used.

    ``hf:org/name@revision`` is a repository of the hub, at a branch, tag or commit (default: its main branch).
    ``timm:NAME`` is the repository that timm names for a model. HF_TOKEN gives access to private ones.

    Raises:
        InputError: there is no such repository or revision, or the hub and the cache do not have its files.
        OSError: the cache cannot be written.
    """
    repo, revision = _parsed(text)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(repo, revision=revision)
        names = sorted(entry.rfilename for entry in info.siblings or ())
        revision = Path(snapshot_download(repo, revision=revision, allow_patterns=_selected(names))).name
    except RevisionNotFoundError:
        raise InputError(f"weights {text}: {repo} has no revision '{revision}'") from None
    except GatedRepoError:
        raise InputError(f"weights {text}: accept the terms of {repo} on the hub, and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise InputError(f"weights {text}: the hub has no {repo}, or it is private: set HF_TOKEN") from None
    except Exception as error:  # the hub's library raises those of its HTTP library
        if isinstance(error, OSError) and error.errno is not None:  # of the cache's disk
            raise
        reason = f"the hub cannot be reached ({type(error).__name__})"
        return _cached(text, repo, revision, reason)
    return _cached(text, repo, revision, "the hub has no model.safetensors or pytorch_model.bin")


def cached(name: str) -> HubWeights:
    """Return weights by name from the cache alone; raise InputError if it does not have them."""
    return _cached(name, *_parsed(name), "fetched when trials are queued, for nodes without a network")


def _parsed(text: str) -> tuple[str, str | None]:
    """Return repository and revision; raise InputError if the text is no name, or timm has no such weights."""
    if (match := NAME.fullmatch(text)) is None:
        raise InputError(f"weights {text}: expected hf:ORGANISATION/NAME, with @REVISION at the end, or timm:NAME")
    repo, revision = match["repo"], match["revision"]
    if match["prefix"] == "hf":
        return repo, revision
    from dropbench.adapters.library_models import timm_repository

    return timm_repository(repo), revision


def _cached(text: str, repo: str, revision: str | None, reason: str) -> HubWeights:
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(repo, "config.json", revision=revision)
    if isinstance(config, str):
        folder = Path(config).parent
        names = sorted(file.name for file in folder.iterdir())
        files = tuple(folder / name for name in _selected(names))
        if any(_is_weights(name) for name in _selected(names)) and not _missing(files):
            return HubWeights(f"hf:{repo}@{folder.name}", folder, files)
    wanted = " ".join(["hf download", repo, *(["--revision", revision] if revision else [])])
    advice = f"run `{wanted}` where there is a network, and share HF_HOME"
    raise InputError(f"weights {text}: not in the cache, and {reason}: {advice}")


def _selected(names: list[str]) -> list[str]:
    """Return those of a repository's files that are read."""
    weights = next((each for kind in WEIGHTS if (each := [name for name in names if _matches(name, kind)])), [])
    return sorted([*(name for name in names if _matches(name, CONFIGURATION)), *weights])


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return "/" not in name and any(fnmatch(name, pattern) for pattern in patterns)


def _is_weights(name: str) -> bool:
    return any(_matches(name, kind) for kind in WEIGHTS)


def _missing(files: tuple[Path, ...]) -> set[str]:
    """Return the parts of weights in several files that are not there."""
    names = {file.name for file in files}
    parts: set[str] = set()
    for index in (file for file in files if file.name.endswith(".index.json")):
        parts |= set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    return parts - names
