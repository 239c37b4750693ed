"""What workers may fetch: the manifest, the dataset's files, the deltas of recent versions, snapshots of newer ones."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from barnraise.data.shards import Dataset
from barnraise.models.vectors import raw

RECENT_VERSIONS = 4
"""Snapshots that can be fetched although no task has named them yet."""

HELD_BYTES = 4 << 30
"""Of older versions, kept because tasks name them; two snapshots at least."""


class BlobStore:
    """Bytes by SHA-256. Snapshots are views of immutable parameters: keeping one keeps its version alive.

    What a node's newest task names stays for as long as the node may be fetching it, however far the run has gone on.
    `warn` hears of files that cannot be read, of each once.
    """

    def __init__(
        self,
        dataset: Dataset,
        manifest_digest: str,
        manifest: bytes,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._warn = warn
        self._unreadable: set[Path] = set()
        self._fixed: dict[str, bytes] = {manifest_digest: manifest}
        self._files = {info.sha256: (dataset.folder / info.name, info.bytes) for info in dataset.files()}
        self._deltas: dict[str, memoryview] = {}
        self._recent: OrderedDict[str, Tensor] = OrderedDict()
        self._holders: dict[str, list[str]] = {}  # node -> digests, the longest held first
        self._held: dict[str, memoryview] = {}
        self._num_holders: Counter[str] = Counter()
        self._held_bytes = 0

    def publish(self, parameters: Tensor, digest: str) -> None:
        """A version exists."""
        self._recent[digest] = parameters
        while len(self._recent) > RECENT_VERSIONS:
            self._recent.popitem(last=False)

    def add_delta(self, digest: str, delta: memoryview) -> None:
        self._deltas[digest] = delta

    def release(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._deltas.pop(digest, None)

    def hold(self, node: str, digests: Iterable[str]) -> None:
        """The node's newest task names these versions; what its earlier ones named is fetched."""
        contents = {digest: content for digest in digests if (content := self._version(digest)) is not None}
        self.let_go(node)
        if not contents:
            return
        self._holders[node] = list(contents)
        for digest, content in contents.items():
            self._num_holders[digest] += 1
            if digest not in self._held:
                self._held[digest] = content
                self._held_bytes += len(content)
        while self._held_bytes > HELD_BYTES and len(self._holders) > 2:
            self.let_go(next(iter(self._holders)))

    def let_go(self, node: str) -> None:
        """The node fetches nothing more."""
        for digest in self._holders.pop(node, ()):
            self._num_holders[digest] -= 1
            if not self._num_holders[digest]:
                del self._num_holders[digest]
                self._held_bytes -= len(self._held.pop(digest))

    def read(self, digest: str, offset: int, num_bytes: int) -> memoryview | None:
        """Bytes of a blob, fewer at its end; None when it is not kept, cannot be read, or ends before `offset`."""
        content = self._find(digest)
        if content is not None:
            piece = content[offset : offset + num_bytes]
        elif digest in self._files:
            piece = self._read(*self._files[digest], offset, num_bytes)
        else:
            return None
        return piece if len(piece) else None

    def _read(self, path: Path, size: int, offset: int, num_bytes: int) -> memoryview:
        if offset >= size:  # which a file system may call an error of the file
            return memoryview(b"")
        try:
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read(num_bytes)
        except OSError as error:
            if path not in self._unreadable:
                self._unreadable.add(path)
                self._warn(f"{path} cannot be read ({error.strerror}); workers that need it wait until it can be")
            return memoryview(b"")
        self._unreadable.discard(path)
        return memoryview(content)

    def _find(self, digest: str) -> memoryview | None:
        return memoryview(self._fixed[digest]) if digest in self._fixed else self._version(digest)

    def _version(self, digest: str) -> memoryview | None:
        if digest in self._deltas:
            return self._deltas[digest]
        if digest in self._recent:
            return raw(self._recent[digest])
        return self._held.get(digest)
