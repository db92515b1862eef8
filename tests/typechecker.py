"""beartype, which checks the shapes in signatures while tests run, at a small part of what jaxtyping takes for it.

jaxtyping's import hook decorates every function with `jaxtyping.jaxtyped`, which binds the arguments of each call by
`inspect` and checks them twice: nearly half of the processor time of a small fit, most of it in functions
without any shape. Here beartype decorates the function itself when it is first called, and only sizes that belong
together, "n" in two arguments, need jaxtyping. An inner function is decorated each time the outer one is called, and
beartype generates code each time. Those are checked by stubs with their signatures and no bodies, so that the same
signature can share one check. So are generators.
"""

import functools
import inspect
import os
import types
from dataclasses import is_dataclass
from typing import Any, get_args

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray

CHECKED = {}
WAITING = []
by_jaxtyping = jaxtyping.jaxtyped


def checked(stub):
    """The stub with its arguments and its result checked; one that was checked before, if the signature is the same."""
    code = stub.__code__
    kinds = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_varnames)
    annotations = tuple(stub.__annotations__.items())
    # beartype checks defaults, too, and only here.
    if stub.__defaults__ or stub.__kwdefaults__:
        return beartype(stub)
    try:
        known = CHECKED.get((stub.__module__, stub.__qualname__, kinds, annotations))
    except TypeError:  # an annotation without a hash
        return beartype(stub)
    if known is None:
        known = CHECKED[stub.__module__, stub.__qualname__, kinds, annotations] = beartype(stub)
    return known


def jaxtyped(decorated, *, typechecker):
    """A function, or a dataclass with an `__init__`, that checks what it is given and what it returns."""
    if inspect.isclass(decorated):
        if is_dataclass(decorated) and "__init__" in vars(decorated) and not skipped(decorated):
            decorated.__init__ = jaxtyped(decorated.__init__, typechecker=typechecker)
        return decorated
    # beartype would check the arguments of a generator when the first item is drawn, among the sizes of who draws it.
    if "<locals>" in decorated.__qualname__ or inspect.isgeneratorfunction(decorated):
        return by_jaxtyping(decorated, typechecker=typechecker)
    check = None

    @functools.wraps(decorated)
    def call(*arguments, **options):
        __tracebackhide__ = True
        return (check or ready())(*arguments, **options)

    def ready():
        """What is called: found when all names of the module are there, and only for what is called at all."""
        nonlocal check
        # Decorators that come later, as `skip_type_check`, mark `call`.
        check = decorated if skipped(call) else with_checks(decorated)
        return check

    WAITING.append(ready)
    return call


def before_a_fork():
    """Decorate what has not been called yet: each of many children would do so again."""
    while WAITING:
        WAITING.pop()()


os.register_at_fork(before=before_a_fork)


def with_checks(function):
    """A copy of a function, so that annotations can be resolved, decorated by beartype and, for sizes, jaxtyping."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = {name: resolved(hint, function) for name, hint in function.__annotations__.items()}
    check = beartype(copy)
    return by_jaxtyping(check, typechecker=None) if any(map(has_shape, copy.__annotations__.values())) else check


def resolved(annotation, function):
    """What a quoted annotation means; anything, where it names what is imported for mypy only."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, function.__globals__)
    except Exception:
        return Any


def skipped(marked):
    return getattr(marked, "__no_type_check__", False)


def has_shape(annotation):
    """Whether sizes are in it, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, AbstractArray):
        return True
    return any(map(has_shape, get_args(annotation)))


def decorator(decorated=None, *, typechecker):
    """What the import hook writes above each function and class: `@jaxtyping.jaxtyped(typechecker=...)`."""
    if decorated is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    return by_jaxtyping(decorated, typechecker=typechecker)


jaxtyping.jaxtyped = decorator
