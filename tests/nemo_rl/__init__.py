"""As much of NeMo-RL as a data-plane client is built with: its names and what they do, without torch."""
