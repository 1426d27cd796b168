"""Whether an object's class is one that this package knows, as its library made it."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from typing import Any

_STANDARD = os.path.realpath(sysconfig.get_paths()["stdlib"])


def known(value: Any, *packages: str) -> str | None:
    """The name of the value's class, if it is a class of one of these packages or modules and none of its methods was
    replaced: not on the class, and not on the object. A subclass is none of the package's, whatever it is called."""
    kind = type(value)
    if not any(kind.__module__ == package or kind.__module__.startswith(f"{package}.") for package in packages):
        return None
    if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        return None
    own = vars(value) if hasattr(value, "__dict__") else {}
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            if not _is_of_its_package(member, base):
                return None
            if name in own and _is_method(member):
                return None
    return None if _has_hooks(own) else kind.__qualname__


def is_function(value: Any, module: str, name: str) -> bool:
    """Whether the value is this function of this module, as the module defines it."""
    found = getattr(sys.modules.get(module), name, None)
    return found is value and _is_of_its_package(value, value)


def _is_method(member: Any) -> bool:
    return callable(member) or isinstance(member, (staticmethod, classmethod, property))


def _is_of_its_package(member: Any, of: Any) -> bool:
    """Whether a class's member is no function from elsewhere."""
    if isinstance(member, property):
        return all(_is_of_its_package(one, of) for one in (member.fget, member.fset) if one is not None)
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    code = getattr(member, "__code__", None)
    if code is None:
        # A class, a constant, or a method in C. Others that can be called were put there.
        return isinstance(member, type) or not callable(member) or type(member).__module__ in ("builtins", "typing")
    package = sys.modules.get(of.__module__.split(".")[0])
    file = getattr(package, "__file__", None)
    if file is None:
        return of.__module__ in sys.stdlib_module_names
    # Decorators of the standard library, and those that were not in it yet.
    if code.co_filename == getattr(sys.modules.get("typing_extensions"), "__file__", None):
        return True
    return _below(code.co_filename, os.path.dirname(file)) or _below(code.co_filename, _STANDARD)


@lru_cache(1 << 14)
def _below(file: str, folder: str) -> bool:
    # Compiled into the interpreter, or made by dataclasses: no file of a user's.
    if file.startswith("<frozen ") or file == "<string>":
        return True
    file, folder = os.path.realpath(file), os.path.realpath(folder)
    return file.startswith(folder + os.sep) and f"{os.sep}site-packages{os.sep}" not in file[len(folder) :]


def _has_hooks(own: dict[str, Any]) -> bool:
    """Whether a module of torch's calls functions before or after itself, or was compiled."""
    if own.get("_forward_hooks") or own.get("_forward_pre_hooks") or own.get("_compiled_call_impl") is not None:
        return True
    if "_forward_hooks" not in own:
        return False
    module = sys.modules.get("torch.nn.modules.module")
    return bool(getattr(module, "_global_forward_hooks", None) or getattr(module, "_global_forward_pre_hooks", None))
