"""ZMQ over TCP, encrypted and authenticated with CURVE."""
