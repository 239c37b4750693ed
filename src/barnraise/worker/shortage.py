"""The message for the owner of a machine that has run out of memory, from libraries' various errors."""

from __future__ import annotations

import errno

_WORDS = ("can't start new thread", "can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc")
"""Parts of errors that mean a lack of memory: a thread needs some for its stack."""


def shortage(error: BaseException) -> str:
    """Return the cause and the remedy, if an error means that memory is used up; else "".

    >>> shortage(ValueError("no")), shortage(MemoryError())[:42]
    ('', 'this machine has no memory left for the ru')
    """
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        short = error.errno in (errno.ENOMEM, errno.EAGAIN)
    else:
        short = isinstance(error, MemoryError) or any(word in text.lower() for word in _WORDS)
    if not short:
        return ""
    said = f" ({text[:200]})" if text else ""
    return (
        f"this machine has no memory left for the run{said}, or its owner lends less than it takes (--max-memory): end "
        "other programs, raise the limit that the worker runs under (ulimit, a container's), or lend fewer --threads"
    )
