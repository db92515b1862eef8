"""A hash of what computes features, so that those of one encoder are never taken for those of another."""

import dis
import functools
import hashlib
import inspect
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# A function, what it uses, and what that uses; beyond, functions go by their names.
DEPTH = 3
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]


def hash_of(value: Any) -> str:
    """Of a tensor or array its content, of a module its class and weights, of a function its source and what it uses.

    Code of installed packages goes by its name alone, so that a run survives their update. What a function changes
    itself, such as a counter, is no part of it; neither are lists, dictionaries and objects that it reads.
    """
    digest = hashlib.sha256()
    update(digest, value, DEPTH)
    return digest.hexdigest()[:16]


def update(digest: Any, value: Any, depth: int) -> None:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        update(digest, torch.from_numpy(np.array(value, value.dtype.newbyteorder("="))), depth)
    elif isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        dense = value.detach().cpu() if value.layout == torch.strided else value.detach().cpu().to_dense()
        digest.update(dense.contiguous().flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, nn.Module):
        update_by_code(digest, type(value), depth)
        for name, part in value.state_dict().items():
            digest.update(name.encode())
            update(digest, part, 0)
    elif isinstance(value, (int, float, complex, str, bytes)) or value is None:
        digest.update(repr(value).encode())
    elif isinstance(value, tuple):
        for part in value:
            update(digest, part, depth)
    elif isinstance(value, functools.partial):
        update(digest, (value.func, value.args, *value.keywords.items()), depth)
    elif inspect.ismethod(value):
        update(digest, (value.__self__, value.__func__), depth)
    elif inspect.isclass(value) or inspect.isroutine(value):
        update_by_code(digest, value, depth)
    else:
        update_by_code(digest, type(value), depth)
        if callable(value) and depth > 0:  # an object that is called as a function
            update(digest, tuple(vars(value).values()) if hasattr(value, "__dict__") else (), depth - 1)


def update_by_code(digest: Any, code: Any, depth: int) -> None:
    """A function or class: its name and source; of a function, its defaults and the variables that it reads."""
    digest.update(f"{getattr(code, '__module__', '')}.{getattr(code, '__qualname__', '')}".encode())
    if depth == 0 or is_installed(code):
        return
    compiled = getattr(code, "__code__", None)
    is_lambda = compiled is not None and compiled.co_name == "<lambda>"  # its source is the whole statement around it
    source = None if is_lambda else source_of(code)
    if source is not None:
        digest.update(source.encode())
    elif compiled is not None:
        update(digest, (compiled.co_code, compiled.co_names, compiled.co_consts), 0)
    if inspect.isfunction(code):
        used = inspect.getclosurevars(code)
        changed = {step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_GLOBAL", "STORE_DEREF")}
        read = {name: value for name, value in {**used.globals, **used.nonlocals}.items() if name not in changed}
        update(digest, (*sorted(read.items(), key=lambda item: item[0]), code.__defaults__), depth - 1)


def source_of(code: Any) -> str | None:
    """The source of a function or class, None if it was typed into a console."""
    try:
        return inspect.getsource(code)
    except OSError:
        return None


def is_installed(code: Any) -> bool:
    """Whether code is Python's own, or of an installed package, or written in C."""
    try:
        file = Path(inspect.getfile(code)).resolve()
    except (TypeError, OSError):
        return getattr(code, "__module__", None) != "__main__"
    return any(file.is_relative_to(folder) for folder in INSTALLED)
