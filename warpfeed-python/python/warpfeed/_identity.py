"""Whether an object's class is one that this package knows, as its library made it."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from collections.abc import Iterator
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
    # torch fetches a batch by this method, whose data sets need not have it in their class.
    if "__getitems__" in own:
        return None
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            if not _is_of_its_package(member, base) or not _is_of_its_class(member, base):
                return None
            if name in own and _is_method(member):
                return None
    return None if _has_hooks(own) else kind.__qualname__


def is_function(value: Any, module: str, name: str) -> bool:
    """Whether the value is this function of this module, as the module defines it."""
    found = getattr(sys.modules.get(module), name, None)
    return found is value and getattr(value, "__module__", None) == module and _is_of_its_package(value, value)


# What reads and changes images in Pillow, by the names of its modules and classes.
_PILLOWS = {
    "PIL.Image": ("open", "new", "merge", "blend", "composite", "fromarray", "frombytes"),
    "PIL.Image.Image": (
        "convert", "copy", "crop", "draft", "filter", "getchannel", "load", "paste", "point", "quantize", "resize", "rotate",
        "split", "tobytes", "transform", "transpose", "__array_interface__",
    ),
    "PIL.ImageOps": ("autocontrast", "equalize", "expand", "grayscale", "invert", "mirror", "posterize", "solarize"),
    "PIL.ImageEnhance.Brightness": ("__init__", "enhance"),
    "PIL.ImageEnhance.Color": ("__init__", "enhance"),
    "PIL.ImageEnhance.Contrast": ("__init__", "enhance"),
    "PIL.ImageEnhance.Sharpness": ("__init__", "enhance"),
}  # fmt: skip
_FUNCTIONS = (
    "torchvision.transforms.functional", "torchvision.transforms._functional_pil", "torchvision.transforms._functional_tensor",
    "torchvision.datasets.folder",
)  # fmt: skip
# What draws parameters, and makes tensors of arrays.
_TORCHS = ("empty", "from_numpy", "rand", "randint", "randn", "randperm")
# There one function may have several names.
_ALIASES = "torchvision.transforms.v2.functional"


def replaced() -> str | None:
    """The name of a function of torchvision's or Pillow's that was replaced; None if all are their own. The classes that are
    converted call them."""
    for name, value, module in _functions():
        if isinstance(value, property):
            value = value.fget
        code = getattr(value, "__code__", None)
        if code is None and isinstance(value, (type, types.BuiltinFunctionType)):
            continue
        package = sys.modules[module.partition(".")[0]]
        folder = os.path.dirname(str(package.__file__))
        folders = (folder, _STANDARD, os.path.dirname(str(getattr(sys.modules.get("torch"), "__file__", folder))))
        if code is None or not any(_below(code.co_filename, one) for one in folders):
            return name
        is_own = value.__module__ == module and not module.startswith(_ALIASES)
        if is_own and value.__name__ != name.rpartition(".")[2]:
            return name
    return None


def _functions() -> Iterator[tuple[str, Any, str]]:
    """Functions that pixels depend on: their name, what is under it now, and the module that has it."""
    for module in _FUNCTIONS:
        yield from _of_module(module)
    for module in [name for name in sys.modules if name.startswith("torchvision.transforms.")]:
        functional = getattr(sys.modules[module], "F", None)
        if functional is not None and not isinstance(functional, types.ModuleType):
            yield f"{module}.F", functional, module
    for module in [name for name in sys.modules if name.startswith(f"{_ALIASES}._")]:
        yield from _of_module(module)
    registry = getattr(sys.modules.get(f"{_ALIASES}._utils"), "_KERNEL_REGISTRY", {})
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    for function, kernels in registry.items():
        if image in kernels:
            kernel = kernels[image]
            kernel = getattr(kernel, "__wrapped__", kernel)
            yield f"{_ALIASES}.{function.__name__} of PIL images", kernel, f"{_ALIASES}._utils"
    for name in _TORCHS if "torch" in sys.modules else ():
        yield f"torch.{name}", getattr(sys.modules["torch"], name), "torch"
    for place, names in _PILLOWS.items():
        module, _, kind = place.rpartition(".") if place.count(".") == 2 else (place, "", "")
        of = sys.modules.get(module)
        of = getattr(of, kind, None) if kind else of
        for name in names if of is not None else ():
            if name in vars(of):
                yield f"{place}.{name}", vars(of)[name], module


def _of_module(module: str) -> Iterator[tuple[str, Any, str]]:
    for name, value in vars(sys.modules[module]).items() if module in sys.modules else ():
        if not isinstance(value, (type, types.BuiltinFunctionType)) and callable(value) and not _is_typing(value):
            yield f"{module}.{name}", value, module


def _is_typing(value: Any) -> bool:
    return type(value).__module__ in ("typing", "types", "_types") or type(value).__qualname__ == "GenericAlias"


def is_list(value: Any) -> bool:
    """Whether a list, an array or a tensor gives its items as its type does: one that is derived from a list may give others."""
    if type(value) in (list, tuple, range) or known(value, "torch.nn.modules") == "ModuleList":
        return True
    return type(value) is getattr(sys.modules.get("numpy"), "ndarray", None) or type(value) is getattr(
        sys.modules.get("torch"), "Tensor", None
    )


def _is_of_its_class(member: Any, base: type) -> bool:
    """Whether a class's method was not taken from another class of its package, and is no foreign descriptor."""
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    name = getattr(member, "__qualname__", None)
    if not hasattr(member, "__code__") or name is None:
        kind = type(member)
        is_foreign = kind.__module__.partition(".")[0] not in sys.stdlib_module_names | {
            base.__module__.partition(".")[0]
        }
        return isinstance(member, type) or not hasattr(kind, "__get__") or not is_foreign
    owner = name.rpartition(".")[0]
    if not owner:
        return bool(member.__module__ == base.__module__)
    return "<locals>" in owner or any(owner == one.__qualname__ for one in base.__mro__)


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
