"""torchvision.transforms.v2 with warpfeed's arithmetic: `from warpfeed import v2` in place of torchvision's.

Every class is derived from torchvision's, so it has the same name, arguments, draws, pickles and place in `nn.Sequential`.
What it does to images, masks, boxes and points is done by `warpfeed.functional`: tensors have the values of Pillow's
images, and what that module refuses is refused here. Conversions between types, MixUp and CutMix are torchvision's.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from torchvision.transforms import v2 as _v2

from . import functional as _functional
from ._kinds import kind

__all__ = [name for name in vars(_v2) if not name.startswith("_")]  # pyright: ignore[reportUnsupportedDunderAll]


class _Functions:
    """The functionals: warpfeed's, and torchvision's where there is none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_functional if name in _functional.__all__ else _v2.functional, name)


functional = _Functions()


class _Applied(_v2.Transform):
    """A transform of torchvision's that calls `functional`."""

    def _call_kernel(self, function: Any, inpt: Any, *args: Any, **kwargs: Any) -> Any:
        if function.__module__ != _functional.__name__:
            return super()._call_kernel(function, inpt, *args, **kwargs)
        return inpt if kind(inpt) is None else function(inpt, *args, **kwargs)


def _derived(cls: type) -> type:
    # Methods of torchvision's call functionals by the name F of their module.
    methods = {
        name: FunctionType(
            method.__code__, {**method.__globals__, "F": functional}, name, method.__defaults__, method.__closure__
        )
        for name, method in inspect.getmembers_static(cls)
        if isinstance(method, FunctionType) and "F" in method.__code__.co_names
    }
    for name, method in methods.items():
        method.__kwdefaults__ = getattr(cls, name).__kwdefaults__
    return type(cls.__name__, (cls, _Applied), {"__module__": __name__, "__doc__": cls.__doc__, **methods})


for _name in __all__:
    _value = getattr(_v2, _name)
    if isinstance(_value, type) and issubclass(_value, _v2.Transform) and _value is not _v2.Transform:
        globals()[_name] = _derived(_value)
    elif _name != "functional":
        globals()[_name] = _value
