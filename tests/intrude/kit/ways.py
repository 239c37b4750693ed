"""The doors of a controller, and the error of an attempt that fails before it begins."""

ZMQ, HTTP = "zmq", "http"
WAYS = (ZMQ, HTTP)


class Unmade(Exception):
    """The attempt failed before it began: it proves nothing."""
