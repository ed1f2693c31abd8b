"""A place to serve at."""

from __future__ import annotations

import socket

from forerun.base.errors import ConfigError


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at the address. Raises: ConfigError when it cannot be had."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}", hint="choose another --port or --host") from None
