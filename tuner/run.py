"""`python -m tuner.run study.yaml`: tunes on every device of this machine.

In Python the same is a call: `tuner.run("study.yaml")`. An import of this module puts it in the
place of that function, so that the module can be called as well.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> object:
        from tuner.api.start import run

        return run(*arguments, **options)


if __name__ == "__main__":
    from tuner.compose.import_guard import refuse_shadow

    refuse_shadow()

    from tuner.cli import entry

    entry.run()
else:
    sys.modules[__name__].__class__ = _CallableModule
