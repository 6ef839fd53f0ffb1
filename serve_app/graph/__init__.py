"""The multi-model graph: cheap questions go to cheap models, the rest to the LLM."""
