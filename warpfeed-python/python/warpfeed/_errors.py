"""Exceptions: each is an Error and also the built-in exception that its cause has in Python."""

from __future__ import annotations

import errno
import re


class Error(Exception):
    """An error of this package.

    `index` and `name` say which sample it was met on, if it was met on one.
    """

    index: int | None = None
    name: str | None = None
    _text = ""

    def __str__(self) -> str:
        return self._text or super().__str__()


class FileError(Error, OSError):
    """The system refused to read or write a file, or a server does not answer. `errno` and `filename` are the system's."""


class FileMissingError(FileError, FileNotFoundError):
    """A file or folder is not there."""


class ParameterError(Error, ValueError):
    """An argument is out of range, or contradicts others."""


class DataError(Error, ValueError):
    """An image or its target is damaged, too large, or does not fit an operation."""


class OutOfMemoryError(Error, MemoryError):
    """There is too little memory on the host or on the device."""


class UnsupportedError(Error, NotImplementedError):
    """A valid request that this build cannot serve."""


class DeviceError(Error, RuntimeError):
    """A device, its driver or its libraries are missing or have failed."""


class OtherError(Error, RuntimeError):
    """A thread could not be started, or a defect of this package."""


_KINDS: dict[str, type[Error]] = {
    "os": FileError,
    "parameter": ParameterError,
    "data": DataError,
    "memory": OutOfMemoryError,
    "unsupported": UnsupportedError,
    "device": DeviceError,
    "other": OtherError,
}


def make(kind: str, text: str, index: int | None, name: str | None, number: int | None, filename: str | None) -> Error:
    """The exception for an error of the native module."""
    error: Error
    text = _in_python(text)
    if kind == "os":
        missing = number == errno.ENOENT
        error = (FileMissingError if missing else FileError)(number, text, filename)
    else:
        error = _KINDS[kind](text)
    error._text = text
    error.index, error.name = index, name
    return error


_NOT_OF_PYTHON = (
    # What the native module calls its parts.
    (r"^(option|pipeline|build_padded|build_ragged|builder|open): ", ""),
    (r"^divisor must", "pad_to must"),
    (
        r"^transforms: FILE must be a JSON list of transforms and operations \(see [^)]*\), got transform: item",
        "transform",
    ),
    (r"\b[ui](8|16|32|64|size)\b", "a whole number"),
    (r"\bf(32|64)\b", "a number"),
    (r"with PipelineBuilder::build_ragged or build_padded", "with ragged=True or pad_to=32"),
    (
        r"\(ImageFolder::below reads [^)]*\)",
        "(torchvision's ImageFolder as the data set reads .bmp and .tif too)",
    ),
    (r"use Device::Cpu \(--device cpu\)", 'use device="cpu"'),
    (r"unknown variant", "there is no"),
    (r"unknown field", "there is no"),
    (r"invalid (type|value): ", ""),
    (r" at line \d+ column \d+", ""),
)


def _in_python(text: str) -> str:
    """The message of an argument's error in words of Python."""
    for native, own in _NOT_OF_PYTHON:
        text = re.sub(native, own, text)
    return text
