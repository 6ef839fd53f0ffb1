"""What the multi-model graph and RAG are worth, measured on a private Ray (`make bench-app`)."""
