"""A model in a GGUF file is the model: transformers reads the same hyperparameters and logits from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM

from barnraise.core.errors import ExportError, ModelError, StorageError, UnknownNameError
from barnraise.data.tokenizers import ByteTokenizer
from barnraise.exports.gguf_file import check_fields, check_type, compare, ends_of, write_gguf
from barnraise.exports.gguf_shapes import SHAPES, shape_of
from barnraise.exports.gguf_vocabulary import GgufVocabulary, vocabulary_of
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.instantiate import hugging_face_config

torch.set_num_threads(1)
BYTES = ByteTokenizer()
LLAMA3 = {
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
}


def resolve(name: str, **config: Any) -> dict[str, Any]:
    grouped = {} if name == "gpt2" else {"num_key_value_heads": 2}
    sizes = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, **grouped, **config}
    return describe({"architecture": name, "config": sizes}, 258, 64, eos_id=BYTES.eos_id, pad_id=BYTES.pad_id)


def vocabulary() -> GgufVocabulary:
    return vocabulary_of(BYTES.files(), BYTES.vocab_size)


def shaken(config: dict[str, Any]) -> torch.nn.Module:
    """A model whose norms and biases are not what they start as, so that a swapped or missing one shows."""
    module = build(config, seed=3).eval()
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=chance)
    return module


def again(path: Path, config: dict[str, Any]) -> Any:
    own = hugging_face_config(config)
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=own, dtype=torch.float32, local_files_only=True
    ).eval()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", SHAPES)
def test_transformers_reads_the_same_model(tmp_path: Path, name: str, tied: bool) -> None:
    config = resolve(name, tie_word_embeddings=tied)
    module, path = shaken(config), tmp_path / "model.gguf"
    rows = torch.arange(120).reshape(2, 60)
    with torch.no_grad():
        expected = module(input_ids=rows).logits
        for kind, allowed in (("f16", 0.004), ("q8_0", 0.05)):
            write_gguf(path, module, config, vocabulary(), kind, "barn")
            check_fields(path, config)
            assert compare(path, module, config, kind) == sum(1 for _ in module.parameters())
            found = again(path, config)(input_ids=rows).logits
            assert float((found - expected).square().mean().sqrt()) < allowed * float(expected.std())


def test_the_types_of_tensors_are_those_of_llama_cpp(tmp_path: Path) -> None:
    config = resolve("gpt2", hidden_size=48)
    module, path = build(config), tmp_path / "model.gguf"
    write_gguf(path, module, config, vocabulary(), "q8_0", "barn")
    types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(path).tensors}
    assert types["position_embd.weight"] == types["blk.0.attn_norm.weight"] == "F32"
    assert types["token_embd.weight"] == "F16", "rows of 48 values do not divide into blocks of 32"
    assert types["blk.0.ffn_down.weight"] == "Q8_0", "rows of 192 values do"


def test_scaled_rotations_are_a_tensor(tmp_path: Path) -> None:
    config = resolve("llama", **LLAMA3)
    module, path = shaken(config), tmp_path / "model.gguf"
    write_gguf(path, module, config, vocabulary(), "f16", "barn")
    (factors,) = [tensor.data for tensor in GGUFReader(path).tensors if tensor.name == "rope_freqs.weight"]
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(8.0)
    assert np.all(np.diff(factors) > -1e-6)
    assert compare(path, module, config, "f16") == sum(1 for _ in module.parameters()) + 1


def test_the_file_says_which_tokens_end_a_text(tmp_path: Path) -> None:
    config, path = resolve("llama"), tmp_path / "model.gguf"
    write_gguf(path, build(config), config, vocabulary(), "f16", "barn")
    assert ends_of(path) == ([256], 257)


def test_other_values_in_the_file_are_noticed(tmp_path: Path) -> None:
    config, path = resolve("llama"), tmp_path / "model.gguf"
    module = build(config, seed=3)
    write_gguf(path, module, config, vocabulary(), "f16", "barn")
    with torch.no_grad():
        module.model.layers[1].self_attn.k_proj.weight[0, 0] += 1.0  # type: ignore[union-attr]
    with pytest.raises(StorageError, match=r"the tensor blk\.1\.attn_k\.weight was not written as it was meant"):
        compare(path, module, config, "f16")
    with pytest.raises(ExportError, match="reads num_attention_heads as 4, but it is 8"):
        check_fields(path, config | {"num_attention_heads": 8})


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("gpt_neo", {}, "writes GGUF for gpt2, llama, qwen2, qwen3, and this model is a gpt_neo; export it with --as "),
        ("bloom", {}, "try llama.cpp's convert_hf_to_gguf.py, which may know a bloom"),
        ("gpt2", {"activation_function": "relu"}, "llama.cpp has no gpt2 with activation_function: relu; export it"),
        ("llama", {"attention_bias": True}, "llama.cpp has no llama with attention_bias: True"),
        ("qwen2", {"use_sliding_window": True}, "llama.cpp has no qwen2 with use_sliding_window: True"),
    ],
)
def test_a_model_that_llama_cpp_does_not_have_is_refused(name: str, config: dict[str, Any], said: str) -> None:
    grouped = {"num_layers": 2} if name in ("gpt_neo", "bloom") else {}
    resolved = describe(
        {"architecture": name, "config": {"hidden_size": 64, "num_heads": 4, "num_layers": 2, **grouped, **config}},
        258,
        64,
    )
    with pytest.raises(ModelError) as caught:
        shape_of(resolved)
    assert said in str(caught.value)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown type of a GGUF file 'q4_k'"):
        check_type("q4_k")
