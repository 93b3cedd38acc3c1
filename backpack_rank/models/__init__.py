"""Rankers as PyTorch modules."""

from transformers import AutoModel, AutoModelForCausalLM

from backpack_rank.models.backpack import BackpackLMHeadModel, BackpackModel
from backpack_rank.models.configuration import BackpackConfig

# Folders that this package saves have the model_type "backpack", which transformers' Auto classes
# look up.
AutoModel.register(BackpackConfig, BackpackModel)
AutoModelForCausalLM.register(BackpackConfig, BackpackLMHeadModel)
