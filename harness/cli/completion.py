"""Shell completion of names, by Typer's mechanism. Modules are imported on use; none of them loads torch."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from dropbench.harness.errors import InputError
from dropbench.harness.registry import Registry, load

Item = tuple[str, str]
"""A value and its help, which zsh and fish show."""
Complete = Callable[[str], list[Item]]

_split_off = ""
"""The beginning of the word that bash has split off, as it breaks words at ``:`` and ``=``."""


def completer(values: Callable[[str], Iterable[Item]]) -> Complete:
    """Return the `autocompletion` of a parameter from a function of the incomplete word.

    Errors complete to nothing: a shell is no place to report them.
    """

    def complete(incomplete: str) -> list[Item]:
        word = _split_off + incomplete
        try:
            items = [item for item in values(word) if item[0].startswith(word)]
        except (InputError, ImportError, OSError):
            return []
        return [(value.removeprefix(_split_off), help) for value, help in items]

    return complete


def one_of(*names: str) -> Complete:
    """Return the completion of an option with fixed values."""
    return completer(lambda word: [(name, "") for name in names])


def join_words() -> None:
    """Undo bash's splitting of ``dropkey:ratio=0.3`` into five words in its variables, and silence log messages.

    Typer's script for bash passes the words separated by line breaks.
    """
    global _split_off
    logging.disable()
    if os.environ.get("_DROPBENCH_COMPLETE") != "complete_bash":
        return
    text, cursor = os.environ["COMP_WORDS"], int(os.environ["COMP_CWORD"])
    separator = "\n" if "\n" in text else " "
    given = [*text.split(separator), ""][: cursor + 1]
    words: list[str] = []
    follows_break = False
    for word in given:
        is_break = re.fullmatch("[:=]+", word) is not None
        if words and (is_break or follows_break):
            words[-1] += word
        else:
            words.append(word)
        follows_break = is_break
    if words[-1].startswith("--") and "=" in words[-1]:
        words[-1:] = words[-1].split("=", 1)
    incomplete = "" if follows_break else given[-1]
    if not words[-1].startswith("-"):
        _split_off, words[-1] = words[-1].removesuffix(incomplete), incomplete
    os.environ.update(COMP_WORDS=separator.join(words), COMP_CWORD=str(len(words) - 1))


def _registry(target: str) -> Complete:
    """Return the completion of the names in a registry, given as ``module:attribute``."""
    return completer(lambda word: _entries(load(target)))


def _entries(registry: Registry[Any]) -> Iterator[Item]:
    return ((name, registry.entry(name).help) for name in registry)


def _suites(word: str) -> list[Item]:
    from dropbench.harness.suites.suite import suite_names

    return [(name, "") for name in suite_names()]


def _runs(word: str) -> Iterator[Item]:
    from dropbench.harness.settings import Settings

    with os.scandir(Settings.from_environment().runs) as files:
        yield from sorted((file.name, "") for file in files if re.fullmatch("[0-9a-f]{12}", file.name))


def _metrics(word: str) -> Iterator[Item]:
    from dropbench.harness.trials.task import TASKS, spec_of

    names = {metric.name: "" for task in TASKS for metric in spec_of(task).metrics}
    yield from (("all", "every metric"), *names.items())


def _regularizers(word: str) -> Iterator[Item]:
    """Yield names, and after ``name:`` the parameters and their defaults, as ``dropkey:ratio=0.3,window=``."""
    from dropbench.harness.regularizers import REGULARIZERS

    name, colon, rest = word.partition(":")
    if not colon:
        yield from _entries(REGULARIZERS)
        return
    *given, _ = rest.split(",")
    start = name + colon + "".join(f"{part}," for part in given)
    present = {part.partition("=")[0] for part in given}
    for key, values in _parameters(name).items():
        if key not in present:
            # With two candidates at least, bash adds no space after the equals sign.
            yield from ((f"{start}{key}={value}", "") for value in dict.fromkeys(["", *values]))


def _parameters(name: str) -> dict[str, list[str]]:
    """Return the parameters of a regularizer, each with its choices or its default."""
    from dropbench.harness.regularizers.schedules import SCHEDULES
    from dropbench.harness.regularizers.spec import complete_spec, fields
    from dropbench.harness.trials.alignment import FINETUNE

    defaults = complete_spec(name).params
    known = {key: [str(defaults[key])] if key in defaults else [] for key in fields(name)}
    for key, field in fields(name).items():
        if get_origin(field.annotation) is Literal:
            known[key] = [*map(str, get_args(field.annotation))]
    return {**known, "schedule": [*SCHEDULES], "align": ["none", FINETUNE]}


complete_suite = completer(_suites)
complete_source = one_of("timm", "hf")
complete_preset = one_of("mini", "small", "paper")
complete_regularizer = completer(_regularizers)
complete_run = completer(_runs)
complete_metric = completer(_metrics)
complete_task = _registry("dropbench.harness.trials.task:TASKS")
complete_model = _registry("dropbench.harness.models.catalog:MODELS")
complete_schedule = _registry("dropbench.harness.regularizers.schedules:SCHEDULES")
complete_analysis = _registry("dropbench.harness.analysis:ANALYSES")
