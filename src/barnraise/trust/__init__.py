"""Pure policies of trust: reputation, audits, suspicion, and signatures that third parties can check."""
