"""beartype, which checks the shapes in signatures while tests run, called once for each signature.

jaxtyping decorates an inner function each time the outer one is called, and beartype generates code each time: that was
a large part of a small fit. What jaxtyping passes here is not the function but a stub with its signature and no
body, so stubs with the same signature can share one check.
"""

from beartype import beartype

CHECKED = {}


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
