"""Configuration of a Backpack over a GPT-2 trunk."""

from __future__ import annotations

from transformers import GPT2Config


class BackpackConfig(GPT2Config):
    """GPT-2's configuration and what a Backpack adds (paper 004 section 2; Hewitt et al. 2023).

    Attributes:
        num_senses: k, sense vectors per token; must divide ``n_embd``.
        sense_intermediate_scale: width of the sense network's last hidden layer, in units of ``n_embd``.
    """

    model_type = "backpack"

    num_senses: int = 16
    sense_intermediate_scale: int = 4

    def __post_init__(self, **kwargs) -> None:
        # The published configuration names code of its own; it is not run and not passed on.
        kwargs.pop("auto_map", None)
        super().__post_init__(**kwargs)
        if self.num_senses < 1 or self.n_embd % self.num_senses:
            raise ValueError(
                f"num_senses={self.num_senses} must be at least 1 and divide n_embd={self.n_embd}, "
                "because every sense has its own n_embd / num_senses dimensions of the contextual weights"
            )
