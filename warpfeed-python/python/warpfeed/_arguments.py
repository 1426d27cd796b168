"""Checks of arguments, by the names and types that their functions declare."""

from __future__ import annotations

import difflib
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

from ._errors import ParameterError

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments have the declared names and types: TypeError and ValueError name what was passed."""
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        name = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
        unknown(name, kwargs, signature.parameters)
        if not hints:
            hints.update(typing.get_type_hints(function))
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in hints:
                check(name, value, hints[name], str(signature.parameters[name].annotation))
        return function(*args, **kwargs)

    return wrapper


def check(name: str, value: Any, hint: Any, declared: str) -> None:
    """Raises TypeError or ValueError, unless a value is of a declared type."""
    if not fits(value, hint):
        raise _wrong(name, value, hint, declared)


def at_least(least: int, **values: Any) -> None:
    """Raises ValueError for the first number that is too small."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ParameterError(f"{name} must be {least} or more, got {value}")


def unknown(function: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raises TypeError for the first name that is none of the names, and says the nearest one."""
    names = [name for name in names if name != "self"]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise TypeError(f"{function} has no argument {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))


def shown(value: Any) -> str:
    """A value as an error message shows it."""
    text = repr(value)
    return f"{text} ({type(value).__name__})" if len(text) <= 60 else f"an object of {type(value).__qualname__}"


def _wrong(name: str, value: Any, hint: Any, declared: str) -> Exception:
    choices = [
        choice for part in _parts(hint) if typing.get_origin(part) is Literal for choice in typing.get_args(part)
    ]
    if choices and isinstance(value, str):
        return _no_choice(name, value, choices)
    return TypeError(f"{name} must be {declared}, got {shown(value)}")


def one_of(name: str, value: str, choices: Sequence[str], expected: str | None = None) -> None:
    """Raises ValueError, with the nearest choice, unless a value is one of the choices."""
    if value not in choices:
        raise _no_choice(name, value, choices, expected)


def _no_choice(name: str, value: str, choices: Sequence[str], expected: str | None = None) -> ParameterError:
    *first, last = map(repr, choices)
    all_of = expected or (f"{', '.join(first)} or {last}" if first else last)
    near = difflib.get_close_matches(value, choices, 1)
    return ParameterError(f"{name} must be {all_of}, got {value!r}" + (f": did you mean {near[0]!r}?" if near else ""))


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in args)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in args)
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool) or isinstance(value, numbers.Integral) and int(value) in (0, 1)
    if origin is tuple:
        if not isinstance(value, (tuple, list)):
            return False
        if args[-1] is Ellipsis:
            return all(fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(fits, value, args))
    if origin is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str) and all(fits(item, args[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping)
    if origin is Callable:
        return callable(value)
    return isinstance(value, hint if origin is None and hint is not None else origin or type(None))
