"""Names of keys in other trainers, and their equivalents here: plain data for messages and for the documentation."""

from __future__ import annotations

from typing import NamedTuple

HF, TRL, AXOLOTL, FLOWER, DILOCO = "HF Trainer", "TRL", "Axolotl", "Flower", "DiLoCo"
FACTORY, ACCELERATE, DEEPSPEED = "LLaMA-Factory", "Accelerate", "DeepSpeed"
TRAINERS = (HF, TRL, AXOLOTL, FACTORY, ACCELERATE, DEEPSPEED, FLOWER, DILOCO)


class Foreign(NamedTuple):
    """A key of other trainers.

    `key` is the equivalent as `section.key`, and empty where there is none; `note` is the remark.
    """

    name: str
    trainer: str
    key: str = ""
    note: str = ""

    @property
    def hint(self) -> str:
        """Return the replacement, as the end of a sentence."""
        here = f"here it is {self.key}" if self.key else "there is no such key here"
        return f"a key of {self.trainer}; {here}{f': {self.note}' if self.note else ''}"


_TOKENS = "a budget of tokens for the whole fleet; for epochs, multiply them by the tokens of the data"
_SHARED = "each machine computes the whole model: what one cannot hold in memory, it cannot train"
_LOCAL = "files and folders of this machine; nothing is downloaded"
_PACKED = "several examples share a row, without attention to each other, and text runs on from row to row"
_ROUNDS = f"{_TOKENS}; a version closes when enough nodes have contributed, without rounds"

FOREIGN: tuple[Foreign, ...] = (
    Foreign("per_device_train_batch_size", HF, "training.batch_size", "rows a step of one node"),
    Foreign(
        "gradient_accumulation_steps",
        HF,
        note="multiply training.batch_size by it; a node splits a batch to fit its memory by itself",
    ),
    Foreign(
        "auto_find_batch_size",
        HF,
        note="a node splits a batch to fit its memory by itself; training.batch_size: auto chooses it by links",
    ),
    Foreign("per_device_eval_batch_size", HF, note="evaluation.rows says how many rows are read"),
    Foreign("compute_metrics", HF, "evaluation.metrics", "names, or a Python function as package.module:function"),
    Foreign("predict_with_generate", HF, "evaluation.metrics", "exact_match generates, and samples are kept"),
    Foreign("generation_max_length", HF, "evaluation.sample_tokens"),
    Foreign("lr", HF, "training.learning_rate"),
    Foreign("num_train_epochs", HF, "training.tokens", _TOKENS),
    Foreign("max_steps", HF, "training.tokens", _TOKENS),
    Foreign("lr_scheduler_type", HF, "training.schedule"),
    Foreign("warmup_steps", HF, "training.warmup_tokens", "counted in tokens of the whole fleet"),
    Foreign("warmup_ratio", HF, "training.warmup_tokens", "the share times training.tokens"),
    Foreign("max_grad_norm", HF, "training.gradient_clip"),
    Foreign("optim", HF, "training.inner_optimizer", "adamw_8bit; for paged ones training.offload_optimizer too"),
    Foreign("adam_beta1", HF, "training.betas", "both in one list, as [0.9, 0.95]"),
    Foreign("adam_beta2", HF, "training.betas", "both in one list, as [0.9, 0.95]"),
    Foreign("adam_epsilon", HF, note="it is 1e-8"),
    Foreign("bf16", HF, "training.precision", "bfloat16 or auto; a worker may have a precision of its own"),
    Foreign("fp16", HF, "training.precision", "bfloat16 or float32"),
    Foreign("torch_dtype", HF, "training.precision", "parameters and moments are float32 in all"),
    Foreign("gradient_checkpointing", HF, "training.checkpoint_activations"),
    Foreign("torch_compile", HF, "training.compile", "auto"),
    Foreign("early_stopping_patience", HF, "training.stop_early", "patience in it"),
    Foreign("tf32", HF, note="it is on where the device has it"),
    Foreign("data_seed", HF, "run.seed"),
    Foreign("output_dir", HF, "run.dir", "a run folder is made in it for each run"),
    Foreign("run_name", HF, "run.name"),
    Foreign("eval_strategy", HF, "evaluation.times", "how many, evenly over the run"),
    Foreign("evaluation_strategy", HF, "evaluation.times", "how many, evenly over the run"),
    Foreign("eval_steps", HF, "evaluation.times", "how many, evenly over the run"),
    Foreign("save_steps", HF, "controller.checkpoint_seconds", "in seconds"),
    Foreign("save_strategy", HF, "controller.checkpoint_seconds", "in seconds"),
    Foreign("save_total_limit", HF, "controller.keep_checkpoints"),
    Foreign("logging_steps", HF, note="all is on the ledger: `barnraise status`, `barnraise report RUN_DIR`"),
    Foreign("resume_from_checkpoint", HF, note="`barnraise resume RUN_DIR` continues a run"),
    Foreign("load_best_model_at_end", HF, note="`barnraise export RUN_DIR --version N` takes any checkpoint kept"),
    Foreign("push_to_hub", HF, note="nothing is uploaded; `barnraise export` writes a folder that `hf upload` takes"),
    Foreign("dataloader_num_workers", HF, note="rows are made before the run, and read from memory-mapped files"),
    Foreign("use_cpu", HF, "workers[].device", "cpu, cuda, cuda:N, mps or xpu"),
    Foreign("device_map", HF, "workers[].device", _SHARED),
    Foreign("fsdp", HF, note=_SHARED),
    Foreign("deepspeed", HF, note=f"{_SHARED}; training.offload_optimizer is ZeRO-Offload"),
    Foreign("offload_optimizer_device", ACCELERATE, "training.offload_optimizer", "true for cpu"),
    Foreign("offload_param_device", ACCELERATE, note="parameters stay on the device; training.adapter has small bases"),
    Foreign("fsdp_offload_params", ACCELERATE, "training.offload_optimizer", "parameters stay on the device"),
    Foreign("cpu_offload", ACCELERATE, "training.offload_optimizer", "parameters stay on the device"),
    Foreign("zero_optimization", DEEPSPEED, "training.offload_optimizer", "true for offload_optimizer: {device: cpu}"),
    Foreign("label_smoothing_factor", HF, note="the loss is plain cross-entropy"),
    Foreign("model_name_or_path", TRL, "model.path", "a local folder; nothing is downloaded"),
    Foreign("tokenizer_name_or_path", TRL, "data.tokenizer", "a local folder or file; nothing is downloaded"),
    Foreign("dataset_name", TRL, "data.files", _LOCAL),
    Foreign("dataset_path", TRL, "data.files", _LOCAL),
    Foreign("dataset_text_field", TRL, "data.fields", "as {text: NAME}"),
    Foreign("assistant_only_loss", TRL, "data.train_on", "assistant, which is the default of kind: chat"),
    Foreign("completion_only_loss", TRL, "data.train_on", "completion, which is the default of kind: instruct"),
    Foreign("chat_template_path", TRL, "data.chat_template", "a file"),
    Foreign("eval_dataset", TRL, "data.held_out", "as {files: [NAME]}"),
    Foreign("max_seq_length", TRL, "data.context"),
    Foreign("max_length", TRL, "data.context"),
    Foreign("peft_config", TRL, "training.adapter", "with peft's r as rank and lora_alpha as alpha"),
    Foreign("load_in_4bit", TRL, "training.adapter", "base: nf4 in it"),
    Foreign("load_in_8bit", TRL, "training.adapter", "base: int8 in it"),
    Foreign("base_model", AXOLOTL, "model.path", "a local folder; nothing is downloaded"),
    Foreign("datasets", AXOLOTL, "data.files", f"or data.mixture; {_LOCAL}"),
    Foreign("train_on_inputs", AXOLOTL, "data.train_on", "all for true, completion for false"),
    Foreign("roles_to_train", AXOLOTL, "data.train_on", "assistant for that role alone, or all"),
    Foreign("train_on_eos", AXOLOTL, note="the end of each trained answer is learnt"),
    Foreign("field_messages", AXOLOTL, "data.fields", "as {messages: NAME}"),
    Foreign("message_property_mappings", AXOLOTL, "data.fields", "as {role: NAME, content: NAME}"),
    Foreign("test_datasets", AXOLOTL, "data.held_out", "as {files: [NAME]}"),
    Foreign("pad_to_sequence_len", AXOLOTL, note="all rows have data.context tokens"),
    Foreign("dataset_prepared_path", AXOLOTL, note="the rows are in the run directory"),
    Foreign("sequence_len", AXOLOTL, "data.context"),
    Foreign("sample_packing", AXOLOTL, note=_PACKED),
    Foreign("micro_batch_size", AXOLOTL, "training.batch_size", "rows a step of one node"),
    Foreign("num_epochs", AXOLOTL, "training.tokens", _TOKENS),
    Foreign("eval_causal_lm_metrics", AXOLOTL, "evaluation.metrics"),
    Foreign("eval_table_size", AXOLOTL, "evaluation.samples"),
    Foreign("eval_max_new_tokens", AXOLOTL, "evaluation.sample_tokens"),
    Foreign("val_set_size", AXOLOTL, "data.held_out", "a share"),
    Foreign("lr_scheduler", AXOLOTL, "training.schedule"),
    Foreign("lora_r", AXOLOTL, "training.adapter", "rank in it"),
    Foreign("lora_alpha", AXOLOTL, "training.adapter", "alpha in it"),
    Foreign("lora_dropout", AXOLOTL, "training.adapter", "dropout in it"),
    Foreign("lora_target_modules", AXOLOTL, "training.adapter", "targets in it"),
    Foreign("flash_attention", AXOLOTL, note="transformers' own choice of attention is used"),
    Foreign("wandb_project", AXOLOTL, "run.report_to", "[wandb]; the project's name is barnraise"),
    Foreign("dataset", FACTORY, "data.files", f"or data.mixture; {_LOCAL}"),
    Foreign("dataset_dir", FACTORY, "data.files", _LOCAL),
    Foreign("template", FACTORY, "data.chat_template", "a file; the tokenizer's own when not given"),
    Foreign("cutoff_len", FACTORY, "data.context"),
    Foreign("val_size", FACTORY, "data.held_out", "a share"),
    Foreign("mask_history", FACTORY, "data.train_on", "completion for the last answer alone"),
    Foreign("train_on_prompt", FACTORY, "data.train_on", "all"),
    Foreign("interleave_probs", FACTORY, "data.mixture", "with a weight for each source"),
    Foreign("mix_strategy", FACTORY, "data.mixture", "with a weight for each source"),
    Foreign("neat_packing", FACTORY, note=_PACKED),
    Foreign("formatting", FACTORY, "data.kind", "the form of a record follows from its fields"),
    Foreign("columns", FACTORY, "data.fields"),
    Foreign("num_rounds", FLOWER, "training.tokens", _ROUNDS),
    Foreign("num_server_rounds", FLOWER, "training.tokens", _ROUNDS),
    Foreign("fraction_fit", FLOWER, note="all nodes that are there work; aggregation.buffer_size closes a version"),
    Foreign("fraction_evaluate", FLOWER, note="evaluation.by says who measures the loss"),
    Foreign("min_fit_clients", FLOWER, "aggregation.buffer_size", "distinct nodes that close a version"),
    Foreign("min_available_clients", FLOWER, "aggregation.buffer_size", "distinct nodes that close a version"),
    Foreign("num_clients", FLOWER, "workers", "a list with an entry for each local worker; others `join`"),
    Foreign("num_supernodes", FLOWER, "workers", "a list with an entry for each local worker; others `join`"),
    Foreign("local_epochs", FLOWER, "training.local_steps", "in steps of training.batch_size rows"),
    Foreign("server_address", FLOWER, "controller.host", "and controller.port"),
    Foreign("strategy", FLOWER, "aggregation.rule"),
    Foreign("proximal_mu", FLOWER, "training.proximal"),
    Foreign("server_learning_rate", FLOWER, "aggregation.outer_learning_rate"),
    Foreign("server_momentum", FLOWER, "aggregation.outer_momentum"),
    Foreign("client_resources", FLOWER, "workers[].threads", "and workers[].device"),
    Foreign("inner_steps", DILOCO, "training.local_steps"),
    Foreign("sync_every", DILOCO, "training.local_steps"),
    Foreign("inner_lr", DILOCO, "training.learning_rate"),
    Foreign("outer_lr", DILOCO, "aggregation.outer_learning_rate"),
    Foreign("num_fragments", DILOCO, "exchange.fragments"),
)

NAMED = {foreign.name: foreign for foreign in FOREIGN}
