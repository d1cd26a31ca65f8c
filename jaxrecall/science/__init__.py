"""What both implementations of the model share: random draws, the task, the embeddings, the model and its loss, decoders, columns."""
