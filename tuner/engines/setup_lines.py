"""Lines of `engine.setup` for scripts on nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: `module` or `ml` as a command.
_USES_MODULES = re.compile(r"(?:^|[;&|({])\s*(?:module|ml)\s")
# Environment Modules and Lmod define it in login shells. A script has it only if the shell that
# submitted it was one and has exported it: not over ssh, on Ray, or from cron.
_MODULES = """\
if ! type module > /dev/null 2>&1; then
    for file in "${MODULESHOME:-}"/init/bash /etc/profile.d/*modules*.sh /etc/profile.d/*lmod*.sh
    do
        [ -r "$file" ] && . "$file"
    done
fi"""


def setup_lines(setup: Sequence[str]) -> tuple[str, ...]:
    """The lines, after those that define `module` if they use it."""
    if any(_USES_MODULES.search(line) for line in setup):
        return (*_MODULES.splitlines(), *setup)
    return tuple(setup)
