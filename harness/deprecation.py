"""Old names of the plug-in API, kept for one release with a DeprecationWarning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that `old` is now called `new`."""
    warnings.warn(f"{old} is now {new}; the old name goes in 0.3", DeprecationWarning, stacklevel=stacklevel)


def alias_renamed_methods(cls: type, names: Mapping[str, str]) -> None:
    """Let a class define and call renamed methods and properties by either name; for ``__init_subclass__``.

    A class that defines the old name gets the new one. A class that defines the new name gets the old one as an alias
    of its own definition, so that ``super().old_name()`` works in plug-ins. `names` maps old names to new ones.
    """
    for old, new in names.items():
        own = cls.__dict__
        if old in own and new not in own:
            warn_renamed(f"{cls.__name__}.{old}", new, stacklevel=4)
            setattr(cls, new, own[old])
        elif new in own and old not in own:
            setattr(cls, old, _alias(cls.__name__, old, new, own[new]))


def renamed_fields(names: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Class decorator: accept old field names in the constructor and as attributes; `names` maps old to new."""

    def decorate(cls: type[T]) -> type[T]:
        original = cls.__init__

        @functools.wraps(original)
        def initialize(self: T, *args: Any, **kwargs: Any) -> None:
            for old in names.keys() & kwargs.keys():
                warn_renamed(f"{cls.__name__}({old}=...)", names[old])
                kwargs[names[old]] = kwargs.pop(old)
            original(self, *args, **kwargs)

        setattr(cls, "__init__", initialize)  # noqa: B010 - mypy rejects an assignment
        for old, new in names.items():
            setattr(cls, old, _renamed_attribute(old, new))
        return cls

    return decorate


def _renamed_attribute(old: str, new: str) -> property:
    def read(self: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    def write(self: Any, value: Any) -> None:
        warn_renamed(f"{type(self).__name__}.{old}", new)
        setattr(self, new, value)

    return property(read, write)


def _alias(owner: str, old: str, new: str, definition: Any) -> Any:
    function: Any = definition.fget if isinstance(definition, property) else definition

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warn_renamed(f"{owner}.{old}", new)
        return function(*args, **kwargs)

    call.__dict__.pop("__isabstractmethod__", None)  # subclasses need not define the alias of an abstract method
    return property(call) if isinstance(definition, property) else call


def inherit_field(cls: type, name: str, kind: type, default: Any, *, see: str) -> None:
    """Give a plug-in's direct subclass a field that its base class had up to 0.1, unless it declares one.

    ``ratio: ClassVar[None] = None`` declares that it has none.
    """
    if name not in cls.__annotations__:
        warnings.warn(f"{cls.__name__} does not declare `{name}`: see {see}", DeprecationWarning, stacklevel=4)
        cls.__annotations__ = {name: kind, **cls.__annotations__}
        setattr(cls, name, default)
