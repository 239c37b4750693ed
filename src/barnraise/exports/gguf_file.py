"""A model as a GGUF file, written tensor by tensor, and read back; imports torch and gguf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from barnraise.core.errors import ExportError, InputError, StorageError, UnknownNameError
from barnraise.exports.gguf_shapes import Array, GgufShape, rope_kind, shape_of
from barnraise.exports.gguf_vocabulary import GgufVocabulary
from barnraise.models.exchange.frozen_base import quietly

if TYPE_CHECKING:
    from gguf import GGUFWriter

TYPES = ("f16", "q8_0")
"""Types of the matrices; all else is float32, as llama.cpp's own converter has it."""

_BLOCK = 32
"""Values of a row that have one scale in q8_0."""

_ROTATION = "rope_freqs.weight"


def require_gguf() -> None:
    """Raise InputError where the packages that write and read GGUF are missing."""
    for package in ("gguf", "accelerate"):  # transformers loads GGUF with the latter
        if find_spec(package) is None:
            raise InputError(
                f"GGUF needs the package {package}, which is not installed; run `pip install 'barnraise[gguf]'`"
            )


def check_type(name: str) -> str:
    """Return the type `name` if a file's matrices may have it; UnknownNameError otherwise."""
    if name not in TYPES:
        raise UnknownNameError("type of a GGUF file", name, TYPES)
    return name


def write_gguf(
    path: Path, module: nn.Module, config: Mapping[str, Any], vocabulary: GgufVocabulary, kind: str, name: str
) -> None:
    """Write `module`, whose config is `config`, to the file `path`, with matrices of the type `kind`.

    One tensor at a time is converted. Raises ModelError for a model that llama.cpp does not have.
    """
    shape = shape_of(config)
    writer = _writer(path, shape.name)
    try:
        _describe(writer, shape, config, vocabulary, kind, name)
        for tensor, values in tensors_of(module, config, shape):
            stored = _type(tensor, values.shape, kind)
            form = _byte_shape(values.shape, stored)
            writer.add_tensor_info(tensor, form, _dtype(stored), int(np.prod(form)) * _dtype(stored).itemsize, stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, values in tensors_of(module, config, shape):
            writer.write_tensor_data(_stored(values, _type(tensor, values.shape, kind)))
    finally:
        writer.close()


def _writer(path: Path, architecture: str) -> GGUFWriter:
    """Return a writer that can write an empty list of merges: gguf refuses one, and llama.cpp requires the key."""
    from gguf import GGUFValueType, GGUFWriter

    class WithoutMerges(GGUFWriter):
        def add_token_merges(self, merges: Sequence[str]) -> None:  # type: ignore[override]
            self.add_key_value("tokenizer.ggml.merges", merges, GGUFValueType.ARRAY, GGUFValueType.STRING)

        def _pack_val(self, val: Any, vtype: Any, add_vtype: bool, sub_type: Any = None) -> bytes:
            if vtype == GGUFValueType.ARRAY and not len(val):
                return bytes(self._pack("I", vtype) + self._pack("I", sub_type) + self._pack("Q", 0))
            return super()._pack_val(val, vtype, add_vtype, sub_type)

    return WithoutMerges(path, architecture)


def tensors_of(module: nn.Module, config: Mapping[str, Any], shape: GgufShape) -> Iterator[tuple[str, Array]]:
    """Yield the names and float32 values of the tensors of a file, tied ones once."""
    for name, parameter in module.named_parameters():
        values: Array = parameter.detach().float().numpy()
        yield shape.rename(name), shape.lay_out(name, values, config)
    if rope_kind(config) != "default":
        yield _ROTATION, _rotation(module, config)


def compare(path: Path, module: nn.Module, config: Mapping[str, Any], kind: str) -> int:
    """Read a file back, and compare each tensor with `module` in the type `kind`; return how many there are.

    Raises StorageError for a tensor with other values.
    """
    from gguf import GGUFReader, dequantize

    found = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    count = 0
    for name, values in tensors_of(module, config, shape_of(config)):
        if name not in found:
            raise StorageError(f"{path} has no tensor {name}; export the model again")
        tensor = found[name]
        stored = _type(name, values.shape, kind)
        expected = dequantize(_stored(values, stored), stored)
        if tensor.tensor_type != stored or not np.array_equal(dequantize(tensor.data, stored), expected):
            raise StorageError(f"{path}: the tensor {name} was not written as it was meant; export the model again")
        count += 1
    if count < len(found):
        raise StorageError(f"{path} has {len(found)} tensors, but the model {count}; export the model again")
    return count


def check_fields(path: Path, config: Mapping[str, Any]) -> None:
    """Read the hyperparameters back through transformers; raise ExportError where one differs."""
    from transformers import AutoConfig

    shape = shape_of(config)
    with quietly():
        found = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    fields = shape.fields(config)
    for key, own in shape.read_as.items():
        if not math.isclose(getattr(found, own), fields[key], rel_tol=1e-6):
            raise ExportError(f"{path}: transformers reads {own} as {getattr(found, own)}, but it is {fields[key]}")


def ends_of(path: Path) -> tuple[list[int], int | None]:
    """Return the tokens that end a text by the file, and its padding."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    found = {name: fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "padding")}
    eos, eot, pad = (None if field is None else int(field.contents()) for field in found.values())
    return [token for token in (eos, eot) if token is not None], pad


def _describe(
    writer: GGUFWriter, shape: GgufShape, config: Mapping[str, Any], vocabulary: GgufVocabulary, kind: str, name: str
) -> None:
    from gguf import GGML_QUANT_VERSION, GGUFValueType, LlamaFileType

    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(LlamaFileType.MOSTLY_F16 if kind == "f16" else LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    for key, value in shape.fields(config).items():
        as_float = isinstance(value, float)
        form = GGUFValueType.FLOAT32 if as_float else GGUFValueType.UINT32
        writer.add_key_value(f"{shape.name}.{key}", value, form)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model("gpt2")  # llama.cpp's name of byte-level BPE
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    for add, token in (
        (writer.add_bos_token_id, vocabulary.bos),
        (writer.add_eos_token_id, vocabulary.eos),
        (writer.add_eot_token_id, vocabulary.eot),
        (writer.add_pad_token_id, vocabulary.pad),
    ):
        if token is not None:
            add(token)
    writer.add_add_bos_token(vocabulary.begins)
    writer.add_add_eos_token(vocabulary.ends)
    if vocabulary.chat_template:
        writer.add_chat_template(vocabulary.chat_template)


def _rotation(module: nn.Module, config: Mapping[str, Any]) -> Array:
    """Return the factors by which a model's rotary frequencies are lower than the usual ones, float32 [half a head]."""
    own = next(buffer for name, buffer in module.named_buffers() if name.endswith("rotary_emb.inv_freq")).double()
    base = float(config["rope_parameters"]["rope_theta"])
    usual = base ** -(torch.arange(len(own), dtype=torch.float64) / len(own))
    factors: Array = (usual / own).float().numpy()
    return factors


def _type(name: str, shape: tuple[int, ...], kind: str) -> Any:
    """Return the type of a tensor in the file, as llama.cpp's own converter chooses it."""
    from gguf import GGMLQuantizationType

    if len(shape) < 2 or name == "position_embd.weight":
        return GGMLQuantizationType.F32
    if kind == "f16" or shape[-1] % _BLOCK:
        return GGMLQuantizationType.F16
    return GGMLQuantizationType.Q8_0


def _dtype(stored: Any) -> np.dtype[Any]:
    return np.dtype({"F32": np.float32, "F16": np.float16}.get(stored.name, np.uint8))


def _byte_shape(shape: tuple[int, ...], stored: Any) -> tuple[int, ...]:
    from gguf import quant_shape_to_byte_shape

    return tuple(quant_shape_to_byte_shape(shape, stored)) if _dtype(stored) == np.uint8 else shape


def _stored(values: Array, stored: Any) -> Array:
    from gguf import quantize

    result: Array = quantize(np.ascontiguousarray(values), stored)
    return result
