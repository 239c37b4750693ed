"""Exported models for other programs: GGUF with a Modelfile, the model card, and the round trip that checks them.

Submodules are imported where they are used; `gguf_shapes`, `gguf_vocabulary`, `model_card` and `modelfile` need no
torch.
"""
