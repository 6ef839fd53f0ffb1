"""Retrieval-augmented generation: embed on CPU, search passages, then ask the LLM."""
