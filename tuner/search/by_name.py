"""Builds samplers and pruners by name from a study file, with their keyword arguments.

Names and arguments are read from Optuna itself: samplers and pruners of new Optuna versions work
without a change here, and the error for a wrong argument lists the existing ones. Other packages
register classes under an entry point group.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar, cast

import numpy as np
from optuna.exceptions import ExperimentalWarning

from tuner.errors import ConfigError
from tuner.search_spaces.space import is_number, nearest

T = TypeVar("T")

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_FOR_YAML = re.compile(r"Callable|FrozenTrial")
_SIMPLE = frozenset({"int", "float", "bool", "str", "None"})
_IN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "dict[str, Any]": "a mapping",
    "BaseSampler": "a sampler, such as {name: tpe}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position of a key in a study file."""

    file: str | None
    key: str

    def below(self, key: str) -> Place:
        """The place of a key in here."""
        return Place(file=self.file, key=f"{self.key}.{key}")

    def error(self, problem: str) -> ConfigError:
        """An error here, worded to follow the key."""
        return ConfigError(problem, file=self.file, key=self.key)


Part: TypeAlias = Callable[[object, Place], object]
"""Makes an argument that is itself an object of Optuna's, such as a wrapped pruner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue(Generic[T]):
    """The classes of one kind, by the names that a study file uses."""

    classes: Mapping[str, type[T]]
    #: Base class of all entries. Any, because mypy accepts no abstract class for a `type[T]`.
    base: type[Any]
    #: Alternative names.
    aliases: Mapping[str, str] = field(default_factory=dict)
    #: Entry point group in which other packages register classes; empty for none.
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a study file can use."""
        return tuple(sorted({*self.built_in, *self._plugins()}))

    @property
    def built_in(self) -> tuple[str, ...]:
        """The names that need no other package's registration."""
        return tuple(sorted({*self.classes, *self.aliases}))

    def load(self, name: str, place: Place) -> type[T]:
        """Finds a class, and imports it if another package has registered it.

        Args:
            name: As `canonical` returns it.
            place: Position in the study file.

        Raises:
            ConfigError: If the class of another package cannot be imported, or is of another kind.
        """
        if name in self.classes:
            return self.classes[name]
        return self._load_plugin(self._plugins()[name], place)

    def canonical(self, name: object, place: Place) -> str:
        """The key in `classes` for a name, an alias or the name of the class itself."""
        by_class = {each.__name__: known for known, each in self.classes.items()}
        if isinstance(name, str):
            found = self.aliases.get(name) or by_class.get(name) or name
            if found in self.classes or found in self._plugins():
                return found
        meant = nearest(str(name), self.names)
        hint = f" Did you mean '{meant}'?" if meant else ""
        problem = f"is {name!r}, but must be one of {', '.join(self.names)}.{hint}"
        raise place.below("name").error(problem)

    def _plugins(self) -> Mapping[str, EntryPoint]:
        """Classes of other packages, except those with a name of the tuner or of Optuna."""
        if not self.group:
            return {}
        taken = {*self.classes, *self.aliases}
        found = entry_points(group=self.group)
        return {each.name: each for each in found if each.name not in taken}

    def _load_plugin(self, plugin: EntryPoint, place: Place) -> type[T]:
        place = place.below("name")
        where = f"is '{plugin.name}', registered as {plugin.value} in {self.group}"
        try:
            cls = plugin.load()
        except Exception as error:  # Importing code of others can raise anything.
            raise place.error(
                f"{where}, which cannot be imported: {type(error).__name__}: {error}"
            ) from error
        is_one = inspect.isclass(cls) and issubclass(cls, self.base)
        if not is_one:
            raise place.error(f"{where}, which is not a subclass of {self.base.__name__}.")
        return cast(type[T], cls)


# Any, because mypy takes no abstract class for a `type[T]`.
def catalogue(
    module: ModuleType, base: type[Any], *, aliases: Mapping[str, str] | None = None
) -> Catalogue[Any]:
    """Finds the classes that an Optuna module exports: `TPESampler` becomes `tpe`."""
    exported = (getattr(module, name) for name in module.__all__)
    classes = {
        _snake_case(each.__name__.removesuffix(base.__name__.removeprefix("Base"))): each
        for each in exported
        if inspect.isclass(each) and issubclass(each, base) and not each.__name__.startswith("Base")
    }
    known = {alias: name for alias, name in (aliases or {}).items() if name in classes}
    return Catalogue(classes=classes, base=base, aliases=known)


def split_name(value: object, place: Place) -> tuple[object, dict[str, object]]:
    """`{name: median, n_warmup_steps: 3}`, or just `median`, as name and arguments."""
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, Mapping) or "name" not in value:
        raise place.error(f"is {value!r}, but must be a name or a mapping with a name.")
    return value["name"], {key: each for key, each in value.items() if key != "name"}


def accepts(cls: type[object], argument: str) -> bool:
    """Whether a class has a keyword argument."""
    return argument in inspect.signature(cls).parameters


def make(
    cls: type[T],
    arguments: Mapping[str, object],
    *,
    name: str,
    place: Place,
    parts: Mapping[str, Part],
) -> T:
    """Builds an Optuna object from a study file's arguments.

    Args:
        cls: The class.
        arguments: The arguments in the file.
        name: The class name in the file.
        place: Position in the file.
        parts: Builds arguments that are objects, by the name of their base class.

    Raises:
        ConfigError: If an argument is unknown, missing, of a wrong type or refused by Optuna.
    """
    known = {each.name: each for each in inspect.signature(cls).parameters.values()}
    for argument in arguments:
        _check_known(argument, known, name=name, place=place)
    ready = {
        argument: _read(value, _annotation(known[argument]), place.below(argument), parts)
        for argument, value in arguments.items()
    }
    ready |= _missing(known, ready, name=name, place=place)
    return _construct(cls, ready, name=name, place=place)


def require_packages(
    name: str,
    packages: Iterable[str],
    place: Place,
    *,
    is_installed: Callable[[str], bool] = lambda package: find_spec(package) is not None,
) -> None:
    """Raises an error for missing packages; Optuna itself detects them too late."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        needs = " and ".join(missing)
        problem = f"is '{name}', which needs {needs}. Run: pip install 'gpu-tuner[samplers]'"
        raise place.error(problem)


def _snake_case(name: str) -> str:
    return _WORD_BOUNDARY.sub("_", name).lower()


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _check_known(
    argument: str, known: Mapping[str, inspect.Parameter], *, name: str, place: Place
) -> None:
    usable = [key for key, each in known.items() if not _NOT_FOR_YAML.search(_annotation(each))]
    if argument in usable:
        return
    have = f"The arguments of {name} are {', '.join(usable)}." if usable else ""
    if argument in known:
        problem = "is Python code in Optuna, which a study file cannot give. Remove it."
        raise place.below(argument).error(f"{problem} {have}".rstrip())
    meant = nearest(argument, usable)
    hint = f" Did you mean '{meant}'?" if meant else ""
    have = have or f"{name} has no arguments: remove it."
    raise place.below(argument).error(f"is not an argument of {name}.{hint} {have}")


def _read(value: object, annotation: str, place: Place, parts: Mapping[str, Part]) -> object:
    types = [each.strip() for each in annotation.split("|")]
    if value is None and "None" in types:
        return None
    for part, make_part in parts.items():
        if part in types:
            return make_part(value, place)
    if "np.ndarray" in types:
        return _array(value, place)
    if any(each.startswith(("dict[", "Mapping[")) for each in types):
        return _mapping(value, place)
    return _simple(value, types, place)


def _simple(value: object, types: Collection[str], place: Place) -> object:
    if not set(types) <= _SIMPLE:
        return value
    kind = type(value).__name__ if value is not None else "None"
    if kind in types:
        return value
    if is_number(value) and "float" in types:
        return float(value)
    raise place.error(f"is {value!r}, but must be {_in_words(types)}.")


def _in_words(types: Collection[str]) -> str:
    return " or ".join(_IN_WORDS.get(each, each) for each in types if each != "None")


def _mapping(value: object, place: Place) -> object:
    if not isinstance(value, Mapping):
        raise place.error(f"is {value!r}, but must be a mapping, with one `name: value` per line.")
    return dict(value)


def _array(value: object, place: Place) -> object:
    try:
        return np.asarray(value, dtype=float)
    except (ValueError, TypeError) as error:
        raise place.error(
            f"is {value!r}, but must be a list of equally long lists of numbers."
        ) from error


def _missing(
    known: Mapping[str, inspect.Parameter],
    given: Collection[str],
    *,
    name: str,
    place: Place,
) -> dict[str, object]:
    """Missing arguments that accept None; an error for those that need a value."""
    absent: dict[str, object] = {}
    for argument, parameter in known.items():
        if argument in given or parameter.default is not inspect.Parameter.empty:
            continue
        annotation = _annotation(parameter)
        if "None" not in annotation:
            problem = f"is missing, and {name} needs it: {_in_words([annotation])}."
            raise place.below(argument).error(problem)
        absent[argument] = None
    return absent


def _construct(cls: type[T], arguments: Mapping[str, object], *, name: str, place: Place) -> T:
    with warnings.catch_warnings():
        # The user asked for it by name.
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            return cls(**arguments)
        except (ValueError, TypeError) as error:
            whose = "Optuna's " if cls.__module__.startswith("optuna.") else ""
            raise place.error(f"is refused by {whose}{name}: {error}") from error
        except ImportError as error:
            problem = f"is '{name}', which needs {error.name or error}."
            raise place.error(f"{problem} Run: pip install 'gpu-tuner[samplers]'") from error
