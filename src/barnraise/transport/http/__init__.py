"""XML-RPC over HTTP, sealed with the same keys (Noise IK), for networks that allow only HTTP."""
