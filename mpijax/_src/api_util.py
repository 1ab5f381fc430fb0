"""Between functions of pytrees and functions of flat lists."""

from mpijax.api_util import *  # noqa: F403
