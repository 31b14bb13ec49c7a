"""What travels between gateway and worker, and what both know of the catalog and the cluster.

The only part of ``engines`` that ``handlers`` may import. It imports neither torch, transformers nor vllm.
"""
