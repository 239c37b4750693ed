"""A machine's identity: a CURVE key pair made locally, and the Ed25519 key that signs its contributions.

The secret half never leaves the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

import zmq
from zmq.utils import z85

from barnraise.core.errors import InputError
from barnraise.trust.signatures import Signer

MAX_FILE_BYTES = 4096

MAX_NAME = 58
"""Characters of a node's name that leave room for a number behind it (64 in all)."""


def hexadecimal(key: str) -> str:
    """Return a public key (Z85) as 64 hexadecimal digits."""
    return z85.decode(key.encode()).hex()


@dataclass(frozen=True)
class Keys:
    """A CURVE25519 key pair, both halves in Z85 (40 printable characters).

    The public half is the machine's identity.
    """

    public: str
    secret: str = field(repr=False)

    @cached_property
    def signer(self) -> Signer:
        """Return the signing key of this machine.

        It follows from the secret half, so that one file holds both; either public key reveals nothing about the other.
        """
        return Signer(hmac.digest(z85.decode(self.secret), b"barnraise signing 1", hashlib.sha256))

    @classmethod
    def generate(cls) -> Keys:
        """Generate a new pair from the system's random source."""
        public, secret = zmq.curve_keypair()
        return cls(public.decode("ascii"), secret.decode("ascii"))

    @classmethod
    def load_or_create(cls, path: Path) -> Keys:
        """Load the pair in the file `path`, made there (mode 0600) when there is none.

        InputError for a file that others may read, that is damaged, or that cannot be written.
        """
        try:
            return cls.load(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise InputError(f"key file {path} cannot be read: {error.strerror}") from None
        keys = cls.generate()
        try:
            keys._create(path)
        except FileExistsError:  # another process was faster: its pair counts
            return cls.load(path)
        except OSError as error:
            raise InputError(
                f"key file {path} cannot be written: {error.strerror}; choose a folder that this user may write to"
            ) from None
        return keys

    @classmethod
    def load(cls, path: Path) -> Keys:
        """Load the pair in the file `path`.

        FileNotFoundError when there is none, InputError when it must not be used.
        """
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise InputError(
                    f"key file {path} has mode {mode:04o}, but only its owner may read it: chmod 600 {path} if you "
                    "are sure that no other person copied it, else delete it (the machine then has to join again)"
                )
            text = file.read(MAX_FILE_BYTES)
        try:
            content = json.loads(text)
            keys = cls(content["public"], content["secret"])
            sound = zmq.curve_public(keys.secret.encode("ascii")).decode("ascii") == keys.public
        except (ValueError, KeyError, TypeError, AttributeError, zmq.ZMQError):
            sound = False
        if not sound:
            raise InputError(
                f"key file {path} is damaged: it must hold a public and a secret key that belong together; restore it "
                "from a backup, or delete it (the machine then has to join again)"
            )
        return keys

    def _create(self, path: Path) -> None:
        """Write the file atomically; FileExistsError when there is one already."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                json.dump({"public": self.public, "secret": self.secret}, file)
                file.flush()
                os.fsync(descriptor)
            os.link(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()


@contextlib.contextmanager
def claimed(base: Path, name: str, without: Container[str] = ()) -> Iterator[tuple[str, Path]]:
    """Claim an identity below `base` for this process, and return its name and folder.

    The name is `name`, or name-2, name-3 ..., but none of `without`. Raises InputError.
    """
    for number in count(1):
        chosen = name if number == 1 else f"{name[:MAX_NAME]}-{number}"
        if chosen in without:
            continue
        folder = base / chosen
        with held(folder) as free:
            if free:
                yield chosen, folder
                return


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Lock the identity in `folder` for the block; False when another process has it.

    Raises InputError when the folder cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"folder {folder} cannot be used: {error.strerror}; choose one that this user may write to"
        ) from None
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def in_use(folder: Path) -> bool:
    """Return whether a process uses the identity in `folder` now, without writing anything."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_public_key(text: str) -> bool:
    """Return whether `text` has the form of a public key: 40 characters of Z85.

    >>> is_public_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7")
    True
    """
    return len(text) == 40 and all(character in _Z85 for character in text)


_Z85 = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
