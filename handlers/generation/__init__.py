"""The generation surfaces: chat, completions, responses and native generate.

Each surface is rules, then a work item, then events into an answer; blocking answers and streams are built from the
same events.
"""

from .chat import ChatSurface
from .completions import CompletionsSurface
from .generate import GenerateSurface
from .responses import ResponsesSurface

__all__ = ["ChatSurface", "CompletionsSurface", "GenerateSurface", "ResponsesSurface"]
