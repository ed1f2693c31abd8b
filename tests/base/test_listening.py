"""An address that cannot be had is one line."""

import pytest

from forerun.base.errors import ConfigError
from forerun.base.listening import listening


def test_a_port_in_use_and_a_host_that_is_none_are_named():
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            listening("127.0.0.1", port)
    assert str(refused.value) == f"cannot listen on 127.0.0.1 port {port}: Address already in use (choose another --port or --host)"
    with pytest.raises(ConfigError, match=r"cannot listen on 300\.1\.1\.1"):
        listening("300.1.1.1", 0)
