"""What this part adds to the core."""

from __future__ import annotations

AT_LOAD = ("backpack_rank.integrations.sequence_classification:register",)
