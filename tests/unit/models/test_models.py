"""Models from configs and folders, against plain transformers."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from barnraise.core.errors import ModelError, UnknownNameError
from barnraise.models import generic, limits
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.build import build, create, load
from barnraise.models.config import check, describe
from barnraise.models.limits import _check_plain

torch.set_num_threads(1)
VOCAB, CONTEXT = 40, 16
SIZES = {"hidden_size": 32, "num_layers": 2, "num_heads": 4}
NAMES = sorted(ARCHITECTURES)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES),
    *((name, {"tie_word_embeddings": name == "llama"}) for name in NAMES),
    ("gpt_neo", {"num_layers": 3, "intermediate_size": 48, "window_size": 8}),
    ("gpt2", {"n_inner": 24, "max_position_embeddings": 64}),
    ("opt", {"word_embed_proj_dim": 8, "enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("opt", {"do_layer_norm_before": False, "ffn_dim": 20}),
    ("llama", {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}),
    ("llama", {"head_dim": 6}),
]


def section(name: str, **config: Any) -> dict[str, Any]:
    return {"architecture": name, "config": SIZES | config}


def resolve(name: str, **config: Any) -> dict[str, Any]:
    return describe(section(name, **config), VOCAB, CONTEXT, eos_id=1, pad_id=2)


def plain(resolved: dict[str, Any], seed: int = 0) -> torch.nn.Module:
    """Return the same model, built by transformers alone."""
    config = CONFIG_MAPPING[resolved["model_type"]](**{k: v for k, v in resolved.items() if k != "model_type"})
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config)


def logits(module: torch.nn.Module) -> torch.Tensor:
    rows = torch.arange(2 * CONTEXT).reshape(2, CONTEXT) % VOCAB
    with torch.no_grad():
        return module.eval()(input_ids=rows, use_cache=False).logits


@pytest.mark.parametrize(("name", "config"), VARIANTS)
def test_shapes_without_torch_are_those_of_transformers(name: str, config: dict[str, Any]) -> None:
    resolved = resolve(name, **config)
    module = build(resolved)
    found = [(key, tuple(parameter.shape)) for key, parameter in module.named_parameters()]
    assert list(ARCHITECTURES[name].shapes(resolved)) == found


@pytest.mark.parametrize("name", NAMES)
def test_tables_agree_with_the_config_classes(name: str) -> None:
    entry = ARCHITECTURES[name]
    fields = {field.name: field.default for field in dataclasses.fields(CONFIG_MAPPING[name])}
    base = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    other_tasks = {"classifier_dropout", "add_cross_attention", *(key for key in fields if key.startswith("summary_"))}
    assert set(entry.defaults) == set(fields) - base - other_tasks
    for key, default in entry.defaults.items():
        if "drop" not in key and not key.endswith("token_id"):
            assert default == fields[key], key


def test_activations_exist() -> None:
    assert set(limits._ACTIVATIONS) <= set(ACT2FN)


@pytest.mark.parametrize("name", NAMES)
def test_same_as_plain_transformers_and_repeatable(name: str) -> None:
    resolved = json.loads(json.dumps(resolve(name)))
    state = torch.get_rng_state()
    module, again, other = build(resolved, 3), build(resolved, 3), build(resolved, 4)
    assert torch.equal(torch.get_rng_state(), state), "the global random state must not move"
    assert module.training
    assert torch.equal(logits(module), logits(plain(resolved, 3)))
    assert torch.equal(logits(module), logits(again))
    assert not torch.equal(logits(module), logits(other))


@pytest.mark.parametrize("name", NAMES)
def test_omitted_model_options_are_derived(name: str) -> None:
    resolved = resolve(name)
    entry = ARCHITECTURES[name]
    assert (resolved["vocab_size"], entry.get(resolved, "positions")) in {(VOCAB, CONTEXT), (VOCAB, None)}
    assert (resolved["bos_token_id"], resolved["eos_token_id"], resolved["pad_token_id"]) == (None, 1, 2)
    assert [value for key, value in resolved.items() if "drop" in key] == [0.0] * sum("drop" in key for key in resolved)
    assert resolved["tie_word_embeddings"] is (name != "llama")
    assert entry.get(resolved, "intermediate_size") == {"bloom": None, "llama": 96}.get(name, 128)


@pytest.mark.parametrize(("layers", "expected"), [(1, ["global"]), (2, ["global", "local"])])
def test_attention_types_fit_any_number_of_layers(layers: int, expected: list[str]) -> None:
    module = build(resolve("gpt_neo", num_layers=layers))
    assert module.config.attention_layers == expected
    assert build(resolve("gpt_neo", num_layers=5)).config.attention_layers == ["global", "local"] * 2 + ["global"]


def test_both_words_for_one_thing_are_understood() -> None:
    friendly = describe(section("gpt2"), VOCAB, CONTEXT)
    own = describe({"architecture": "gpt2", "config": {"n_embd": 32, "n_layer": 2, "n_head": 4}}, VOCAB, CONTEXT)
    standard = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    assert friendly == own == describe({"architecture": "gpt2", "config": standard}, VOCAB, CONTEXT)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("gpt2", {"hidden_sise": 32}, "gpt2 has no config key 'hidden_sise'; did you mean 'hidden_size'?"),
        ("bloom", {"intermediate_size": 64}, "bloom has no config key 'intermediate_size'"),
        ("bloom", {"attn_implementation": "someone/kernels"}, "no config key 'attn_implementation'"),
        ("gpt2", {"n_embd": 64}, "'hidden_size' is 32 and 'n_embd' is 64, but both mean n_embd; keep one"),
        ("gpt_neo", {"hidden_size": 30}, "hidden_size is 30, but must be a multiple of the 4 attention heads; take 32"),
        ("gpt_neo", {"hidden_size": "32"}, "hidden_size is '32', but must be int"),
        ("gpt_neo", {"hidden_size": 32.5}, "hidden_size is '32.5', but must be int"),
        ("gpt_neo", {"num_layers": 0}, "num_layers is 0, but must be a whole number from 1 to 1024"),
        ("gpt_neo", {"num_heads": True}, "num_heads is 'True', but must be int"),
        ("gpt_neo", {"vocab_size": 39}, "vocab_size is 39, but the data has 40 token ids"),
        ("gpt_neo", {"positions": 8}, "max_position_embeddings is 8, but the data has rows of 16 tokens"),
        ("gpt2", {"n_positions": 8}, "n_positions is 8, but the data has rows of 16 tokens"),
        ("gpt_neo", {"attention_types": [[["global"], 3]]}, "covers 3 layers, but the model has 2"),
        (
            "gpt_neo",
            {"attention_types": [[["sparse"], 2]]},
            "make it cover 2 layers, as [[['global'], 2]] does",
        ),
        ("gpt_neo", {"attention_types": [[["global"], 10**15]]}, "covers 1000000000000000 layers"),
        ("gpt_neo", {"activation_function": "gelo"}, "'gelo', which does not exist; did you mean 'gelu'?"),
        ("gpt_neo", {"resid_dropout": 1.0}, "resid_dropout is 1.0, but must be from 0 to below 1"),
        ("gpt_neo", {"layer_norm_epsilon": float("nan")}, "must be a finite number"),
        ("gpt_neo", {"eos_token_id": 40}, "eos_token_id is 40, but must be a token id below 40"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads is 3, but must divide the 4 attention heads"),
        ("llama", {"num_heads": 32}, "heads are 1 wide, but rotary positions need an even width"),
        ("llama", {"rope_parameters": {"rope_type": [[[[[[[[1]]]]]]]]}}, "nested deeper"),
        ("opt", {"word_embed_proj_dim": -1}, "word_embed_proj_dim is -1"),
    ],
)
def test_invalid_options_are_refused(name: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(name, **config)
    assert message in str(caught.value)


def test_sections_that_make_no_sense() -> None:
    with pytest.raises(UnknownNameError, match="unknown model architecture 'gtp2'; did you mean 'gpt2'"):
        describe(section("gtp2"), VOCAB, CONTEXT)
    with pytest.raises(ModelError, match="exactly one of"):
        describe({}, VOCAB, CONTEXT)
    with pytest.raises(ModelError, match="exactly one of"):
        describe({"architecture": "gpt2", "path": "x"}, VOCAB, CONTEXT)


@pytest.mark.parametrize(
    "change",
    [
        {"attn_implementation": "someone/kernels"},
        {"_attn_implementation": "someone/kernels"},
        {"auto_map": {"AutoModelForCausalLM": "evil.Model"}},
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        {"num_hidden_layers": 10**12},
        {"hidden_size": -32},
        {"rope_parameters": {"rope_type": "default", "attn_implementation": "x"}},
        {"rope_parameters": {"factors": [1.0] * 30_000}},
        {"model_type": "no_such"},
        {"model_type": ["llama"]},
    ],
)
def test_a_hostile_config_from_the_network_is_refused(change: dict[str, Any]) -> None:
    resolved = resolve("llama")
    check(resolved)
    with pytest.raises((ModelError, UnknownNameError)):
        build(resolved | change)
    with pytest.raises(ModelError, match="lacks hidden_act"):
        build({key: value for key, value in resolved.items() if key != "hidden_act"})


@pytest.mark.parametrize("name", NAMES)
def test_a_local_checkpoint_folder(tmp_path: Path, name: str) -> None:
    original = plain(resolve(name), seed=5)
    original.save_pretrained(tmp_path)
    given = {"path": str(tmp_path)}
    resolved = describe(given, VOCAB - 3, CONTEXT - 3, eos_id=7)
    module = create(given, resolved)
    assert module.training
    assert torch.equal(logits(module), logits(original.eval()))
    assert resolved["eos_token_id"] == 7
    with pytest.raises(ModelError, match="the data has 41 token ids; leave vocab_size out, or use the tokenizer"):
        describe(given, VOCAB + 1, CONTEXT)
    if name != "bloom":
        with pytest.raises(ModelError, match="set the data's context to 16 or less"):
            describe(given, VOCAB, CONTEXT + 1)


def test_dropout_of_a_checkpoint_is_what_its_folder_says(tmp_path: Path) -> None:
    CONFIG_MAPPING["gpt2"](vocab_size=VOCAB, n_embd=8, n_layer=1, n_head=2, embd_pdrop=0.2).save_pretrained(tmp_path)
    resolved = describe({"path": tmp_path}, VOCAB, CONTEXT)
    assert (resolved["resid_pdrop"], resolved["embd_pdrop"], resolved["attn_pdrop"]) == (0.1, 0.2, 0.1)
    assert (resolved["n_inner"], resolved["n_positions"]) == (32, 1024)
    assert resolved["bos_token_id"] is None, "transformers' default 50256 is outside this vocabulary"
    assert build(resolved).transformer.drop.p == 0.2
    given = describe({"path": tmp_path, "config": {"embd_pdrop": 0.0}}, VOCAB, CONTEXT)
    assert given == resolved | {"embd_pdrop": 0.0}
    for config in ({"n_embd": 16}, {"hidden_size": 16}, {"vocab_size": VOCAB, "resid_pdrop": 0.3}):
        with pytest.raises(
            ModelError, match=r"config sets .*beside a path config may set dropout alone \(resid_pdrop, "
        ):
            describe({"path": tmp_path, "config": config}, VOCAB, CONTEXT)


@pytest.mark.parametrize("name", [*NAMES, "gpt_neox"])
def test_a_checkpoint_that_names_no_dropout_has_that_of_transformers(tmp_path: Path, name: str) -> None:
    plain(resolve(name)).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({key: saved[key] for key in saved if "drop" not in key}))
    wanted = AutoConfig.from_pretrained(tmp_path).to_dict()
    resolved = describe({"path": tmp_path}, VOCAB, CONTEXT)
    found = {key: value for key, value in resolved.items() if "drop" in key}
    assert found
    assert found == {key: wanted[key] for key in found}


def test_no_architecture_keeps_dropout() -> None:
    refused = {"rwkv"}  # it compiles code as it is built
    kept = [
        (name, key, value)
        for name in set(generic._model_types()) - refused
        for key, value in generic.architecture(name).defaults.items()
        if "drop" in key and value
    ]
    assert kept == []


def test_dropout_by_any_name_is_a_share() -> None:
    with pytest.raises(ModelError, match=r"hidden_dropout_prob is 1\.5, but must be from 0 to below 1"):
        resolve("bert", hidden_dropout_prob=1.5)


def test_llama_folders_written_before_version_5(tmp_path: Path) -> None:
    old = {key: value for key, value in resolve("llama").items() if key not in ("rope_parameters", "head_dim")}
    (tmp_path / "config.json").write_text(json.dumps(old | {"rope_theta": 500.0, "torch_dtype": "bfloat16"}))
    resolved = describe({"path": tmp_path}, VOCAB, CONTEXT)
    assert resolved["rope_parameters"] == {"rope_theta": 500.0, "rope_type": "default"}
    assert resolved["head_dim"] == 8


def test_folders_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json cannot be read \(No such file or directory\); give a folder"):
        describe({"path": tmp_path}, VOCAB, CONTEXT)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="is not JSON"):
        describe({"path": tmp_path}, VOCAB, CONTEXT)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="names no model_type"):
        describe({"path": tmp_path}, VOCAB, CONTEXT)
    resolved = resolve("gpt2")
    (tmp_path / "config.json").write_text(json.dumps(resolved | {"quantization_config": {}}))
    with pytest.raises(ModelError, match="is quantized"):
        describe({"path": tmp_path}, VOCAB, CONTEXT)
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        load(tmp_path, resolved)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(ModelError, match="pickled weights"):
        load(tmp_path, resolved)
    plain(resolved).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="lacks"):
        load(tmp_path, resolved | {"n_layer": 3})
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:-100])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(tmp_path, resolved)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds an adapter"):
        load(tmp_path, resolved)


@pytest.mark.parametrize("name", ["gpt_neox", "qwen2", "mpt", "bert"])
def test_any_other_causal_language_model(tmp_path: Path, name: str) -> None:
    told = section(name) | {"problem": "causal_lm"}  # bert is usually trained on masked tokens
    resolved = json.loads(json.dumps(describe(told, VOCAB, CONTEXT, eos_id=1, pad_id=2)))
    module = build(resolved, 1)
    found = [(key, tuple(parameter.shape)) for key, parameter in module.named_parameters()]
    assert list(generic.architecture(name).shapes(resolved)) == found
    assert torch.equal(logits(module), logits(plain(resolved, 1)))
    changed = torch.arange(CONTEXT)[None] % VOCAB
    with torch.no_grad():
        before = module(input_ids=changed).logits[:, :-1]
        changed[0, -1] = 0
        assert torch.allclose(before, module(input_ids=changed).logits[:, :-1], atol=1e-6), "it must not see the future"
    module.save_pretrained(tmp_path)
    again = create({"path": tmp_path}, describe({"path": tmp_path, "problem": "causal_lm"}, VOCAB, CONTEXT))
    assert torch.equal(logits(module), logits(again))


def test_other_architectures_are_refused_as_clearly() -> None:
    with pytest.raises(ModelError, match="qwen2 has no config key 'hidden_siz'; did you mean 'hidden_size'"):
        resolve("qwen2", hidden_siz=3)
    with pytest.raises(ModelError, match="gptj of these sizes cannot read text"):
        build(resolve("gptj"))
    assert generic._model_types() == list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def test_a_run_file_is_checked_without_torch_or_transformers() -> None:
    program = """
import sys
from barnraise import models
from barnraise.models import config, memory
from barnraise.models.exchange.record import Exchange
for name in ("gpt_neo", "gpt2", "opt", "bloom", "llama"):
    resolved = config.describe({"architecture": name, "config": {"hidden_size": 64, "num_heads": 4}}, 100, 64)
    assert Exchange.of(resolved).trained == memory.model_size(resolved)
try:
    config.describe({"architecture": "gpt_neu"}, 100, 64)
except Exception as error:
    print(error)
print(sorted({"torch", "transformers"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "unknown model architecture 'gpt_neu'; did you mean 'gpt_neo'? (known: bloom, gpt2, gpt_neo, llama, opt)",
        "[]",
    ]


def test_a_model_whose_code_fetches_other_code_is_refused() -> None:
    with pytest.raises(ModelError, match=r"rwkv fetches or compiles code .* as it is built \(load_wkv_cuda"):
        describe({"architecture": "rwkv"}, VOCAB, CONTEXT)


def test_a_model_within_a_model_is_refused_for_the_same_reason() -> None:
    with pytest.raises(ModelError, match=r"rwkv fetches or compiles code"):
        _check_plain("decoder", {"model_type": "rwkv", "hidden_size": 8})
