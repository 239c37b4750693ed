"""Key files: one secret key of a run, which its workers and exporters share, and which the host does not get.

A key file is one line of JSON (format, run, scheme, version of TenSEAL, id of the key) and TenSEAL's context with the
secret key. It has mode 0600. A lab copies it by a way that the host does not see, such as ssh between the members. The
key's id is a digest of the file's secret; the host needs only the id. There is no public key: each machine that
encrypts may also decrypt, and encryption with the secret key has a tenth of the noise and takes a third of the time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnraise.core.errors import InputError
from barnraise.core.files import write_file
from barnraise.core.text import printable

from .scheme import DEGREE, MODULUS_BITS, NAME

KEY_FORMAT = 1
KEY_FILE_LIMIT = 1 << 20
"""Most bytes of a key file; one has 110 kB."""

_ID_DIGITS = 32


@dataclass(frozen=True, eq=False)
class SecretKey:
    """A run's secret key; `repr` shows its id only."""

    run: str
    id: str
    context: Any

    @property
    def name(self) -> str:
        """Return the key's name and id, by which run files name it."""
        return f"{self.run}/{self.id}"

    def __repr__(self) -> str:
        return f"SecretKey(run={self.run!r}, id={self.id!r})"


def tenseal() -> Any:
    """Return the library; InputError with what to install where it is missing."""
    try:
        import tenseal as library
    except ImportError as error:
        raise InputError(
            "encryption needs TenSEAL, which is not installed; pip install 'barnraise[privacy]'"
        ) from error
    return library


def checked_name(name: str) -> str:
    """Return the name of a key; InputError where it cannot stand in a run file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise InputError(
            f"'{printable(name, 80)}' cannot name a key: use up to 64 letters, digits, '_', '.' and '-' (--name)"
        )
    return name


def make(run: str) -> SecretKey:
    """Make a new secret key for the run of this name, from the system's random numbers."""
    library = tenseal()
    context = library.context(
        library.SCHEME_TYPE.CKKS,
        DEGREE,
        coeff_mod_bit_sizes=[MODULUS_BITS, MODULUS_BITS],
        encryption_type=library.ENCRYPTION_TYPE.SYMMETRIC,
        n_threads=1,
    )
    return SecretKey(run, _id(run, _secret(context)), context)


def save(key: SecretKey, path: Path) -> None:
    """Write the key file, readable by its owner alone; InputError when the file exists."""
    if path.exists():
        raise InputError(f"{path} exists, and a key that is replaced cannot be restored; give another path")
    head = {
        "format": KEY_FORMAT,
        "run": key.run,
        "scheme": NAME,
        "tenseal": importlib.metadata.version("tenseal"),
        "key": key.id,
    }
    write_file(path, json.dumps(head).encode() + b"\n" + _secret(key.context), mode=0o600)


def load(path: Path) -> SecretKey:
    """Read a key file; InputError when others may read it, or when it is no key file of these parameters."""
    try:
        found = path.stat()
        content = path.read_bytes() if found.st_size <= KEY_FILE_LIMIT else b""
    except OSError as error:
        raise InputError(
            f"the key file {path} cannot be read: {error.strerror}; ask a member of the run for it"
        ) from error
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise InputError(f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so others can read it; chmod 600 {path}")
    if not content:
        raise InputError(f"{path} has {found.st_size} bytes, a key file has 1 to {KEY_FILE_LIMIT}; give the key file")
    line, _, secret = content.partition(b"\n")
    run, name = _head(path, line)
    library = tenseal()
    if _id(run, secret) != name:
        raise InputError(f"{path} is damaged: its secret has not the id {name}; copy it again")
    try:
        context = library.context_from(secret, n_threads=1)
    except Exception as error:  # the library raises several kinds for bytes of another version
        raise InputError(
            f"{path} cannot be read by TenSEAL {library.__version__}: {printable(str(error), 200)}; "
            "use the version that wrote it, which its first line names"
        ) from error
    return SecretKey(run, name, context)


def _head(path: Path, line: bytes) -> tuple[str, str]:
    """Return the run and the key's id from a key file's first line."""
    try:
        head = json.loads(line)
        form, run, scheme, name = head["format"], head["run"], head["scheme"], head["key"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is no key file; give the file that barnraise made as one") from error
    if form != KEY_FORMAT or scheme != NAME or not isinstance(run, str) or not isinstance(name, str):
        raise InputError(
            f"{path} has the format {printable(str(form), 20)} and the scheme {printable(str(scheme), 40)}, "
            f"but this barnraise reads format {KEY_FORMAT} and {NAME}; make a new key"
        )
    return run, name


def _secret(context: Any) -> bytes:
    return bytes(
        context.serialize(save_public_key=False, save_secret_key=True, save_galois_keys=False, save_relin_keys=False)
    )


def _id(run: str, secret: bytes) -> str:
    return hashlib.sha256(b"barnraise key\0" + run.encode() + b"\0" + secret).hexdigest()[:_ID_DIGITS]
