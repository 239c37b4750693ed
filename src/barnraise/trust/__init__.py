"""Whom to believe, how much, and what proves to somebody who was not there what happened: pure policies."""
