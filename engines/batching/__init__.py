"""Batching: the inputs of many requests merged into forward passes of one model, and split back in order.

Three stages on threads (tokenise, forward, post-process) behind an asyncio front. Each queue has one owner and
threads talk in messages. Nothing here knows torch: what runs is any ``Model``.
"""

from .batcher import Batcher, Closed, Done, Load, Overloaded
from .model import Limits, Model, Tokenized
from .stages import OutOfMemory

__all__ = ["Batcher", "Closed", "Done", "Limits", "Load", "Model", "OutOfMemory", "Overloaded", "Tokenized"]
