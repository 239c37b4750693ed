"""Whom to believe, and how much: pure policies over plain values."""
