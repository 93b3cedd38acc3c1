"""What this part adds to the core."""

from __future__ import annotations

AT_LOAD = ("backpack_rank.integrations.sequence_classification:register",)
SHARING = {
    "save_pretrained": "backpack_rank.integrations.hub:save_pretrained",
    "push_to_hub": "backpack_rank.integrations.hub:push_to_hub",
}
