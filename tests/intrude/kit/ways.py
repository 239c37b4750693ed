"""The doors of a controller, and what it is to come to nothing at one."""

ZMQ, HTTP = "zmq", "http"
WAYS = (ZMQ, HTTP)


class Unmade(Exception):
    """The attempt came to nothing before it began: it proves nothing."""
