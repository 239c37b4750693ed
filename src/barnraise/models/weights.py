"""The weight files of a checkpoint folder, examined by their headers alone, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnraise.core.errors import ModelError
from barnraise.models.architectures import ARCHITECTURES

Shape = tuple[int, ...]

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
_MAX_HEADER = 100 << 20  # the limit of safetensors itself
_AGAIN = "copy the folder again from where it is whole"


def check_weights(folder: Path, resolved: Mapping[str, Any]) -> None:
    """Raise ModelError unless the folder's weights are whole and have every parameter of `resolved`, in its shape.

    Shapes are compared for the architectures of `ARCHITECTURES`; of others the files must be whole.
    """
    found = shapes_in(folder)
    entry = ARCHITECTURES.get(str(resolved["model_type"]))
    if entry is None:
        return
    lacking: list[str] = []
    for number, (name, shape) in enumerate(entry.shapes(resolved)):
        names = [name, name.partition(".")[2]]  # a base model's file has no prefix
        if number == 0 and resolved.get("tie_word_embeddings"):
            names.append("lm_head.weight")
        there = next((found[each] for each in names if each in found), None)
        if there is None:
            lacking.append(name)
        elif there != shape:
            raise ModelError(
                f"{folder}: {name} has the shape {list(there)}, but by config.json it has {list(shape)}; the weights "
                "and the config are of two models"
            )
    if lacking:
        raise ModelError(
            f"{folder} lacks {len(lacking)} parameters of a {resolved['model_type']} ({', '.join(lacking[:3])}); "
            "give a causal language model's checkpoint"
        )


def shapes_in(folder: Path) -> dict[str, Shape]:
    """Return the shape of every tensor in the folder's weight files, by name; ModelError when one is not whole."""
    found: dict[str, Shape] = {}
    for path in files_in(folder):
        found |= _shapes(path)
    return found


def files_in(folder: Path) -> list[Path]:
    """Return the folder's weight files, in order; ModelError when one is not there."""
    require_safe(folder)
    if (folder / ONE).is_file():
        return [folder / ONE]
    names = sorted(_files(folder / INDEX))
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name[:80]!r}, which {INDEX} names; {_AGAIN}")
    return [folder / name for name in names]


def require_safe(folder: Path) -> None:
    """Raise ModelError unless the folder has weights as safetensors, for a model rather than an adapter."""
    if (folder / "adapter_config.json").exists():
        raise ModelError(f"{folder} holds an adapter; merge it into its base model and give that folder")
    if any((folder / name).is_file() for name in (ONE, INDEX)):
        return
    if list(folder.glob("*.bin")) + list(folder.glob("*.pt")) + list(folder.glob("*.pth")):
        raise ModelError(
            f"{folder} has pickled weights, which can run code when loaded; convert them to model.safetensors "
            "with safetensors.torch.save_file where you trust them"
        )
    raise ModelError(f"{folder} has no model.safetensors; give a folder that transformers' save_pretrained wrote")


def _files(index: Path) -> set[str]:
    try:
        names = json.loads(index.read_bytes())["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} cannot be read ({error}); {_AGAIN}") from error
    return {str(name) for name in names}


def _shapes(path: Path) -> dict[str, Shape]:
    """Read the shapes from the header of a safetensors file: eight bytes with its length, then JSON."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_MAX_HEADER, size - 8):
                raise ModelError(f"{path} is no safetensors file, or is cut short ({size} bytes); {_AGAIN}")
            header = json.loads(file.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); give a folder that you may read") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelError(f"{path} is no safetensors file ({str(error)[:200]}); {_AGAIN}") from error
    if 8 + length + end != size:
        raise ModelError(f"{path} has {size} bytes, but by its header {8 + length + end}; {_AGAIN}")
    return shapes
