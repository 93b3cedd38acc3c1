"""Rankers as PyTorch modules."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from backpack_rank.models.backpack import BackpackLMHeadModel, BackpackModel
from backpack_rank.models.configuration import BackpackConfig

# Folders that this package saves say model_type "backpack"; transformers' Auto classes then know what they are.
AutoConfig.register(BackpackConfig.model_type, BackpackConfig)
AutoModel.register(BackpackConfig, BackpackModel)
AutoModelForCausalLM.register(BackpackConfig, BackpackLMHeadModel)
