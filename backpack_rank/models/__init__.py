"""Rankers as PyTorch modules."""

from transformers import AutoModel, AutoModelForCausalLM

from backpack_rank.models.backpack import BackpackLMHeadModel, BackpackModel
from backpack_rank.models.configuration import BackpackConfig

# Folders that this package saves say model_type "backpack"; transformers' Auto classes then know
# what they are.
AutoModel.register(BackpackConfig, BackpackModel)
AutoModelForCausalLM.register(BackpackConfig, BackpackLMHeadModel)
