"""How far a run came: checkpoints in a directory or in S3."""
