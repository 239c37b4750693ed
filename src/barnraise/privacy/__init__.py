"""Privacy of a run: what others learn of a member's rows, and what prevents it; subpackages only."""
