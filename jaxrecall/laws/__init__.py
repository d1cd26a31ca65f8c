"""What an experiment chooses among: laws of the embeddings and activations of the MLP."""
