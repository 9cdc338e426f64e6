"""How anything leaves for Datadog: checked, grouped, split, delivered."""
