"""How anything is asked over the network: HTTP through a proxy, and what is tried again."""
