"""What outlives a stream: a few samples of old tasks, and a digest of all of them."""
