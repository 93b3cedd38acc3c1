"""``bm25s``, imported without JAX.

Where JAX is installed, bm25s runs it once at its import, for a choice of the best documents that we
do not use. On a GPU JAX then takes three quarters of the memory, which the ranker needs.
"""

from __future__ import annotations

import sys
from typing import Any

_MODULES = ("jax", "jax.lax")
_found = {name: sys.modules[name] for name in _MODULES if name in sys.modules}
_blocked: dict[str, Any] = dict.fromkeys(_MODULES)
# None in this place makes `import jax` raise ImportError: bm25s then goes without.
sys.modules.update(_blocked)
try:
    import bm25s
finally:
    for _name in _MODULES:
        del sys.modules[_name]
    sys.modules.update(_found)

__all__ = ["bm25s"]
