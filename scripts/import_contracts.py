"""A contract of our own for import-linter: modules that may need nothing but the standard library."""

from __future__ import annotations

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class StandardLibraryOnly(Contract):
    """Neither these modules nor anything they import, however late, needs a package."""

    source_modules = fields.ListField(subfield=fields.ModuleField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        """Find a chain to every foreign package that can be reached."""
        sources = [module.name for module in self.source_modules]  # type: ignore[attr-defined]
        # The graph has every package from outside as one module.
        foreign = [
            name
            for name in graph.modules
            if graph.is_module_squashed(name) and name not in sys.stdlib_module_names
        ]
        chains = [
            chain
            for source in sources
            for name in foreign
            if (chain := graph.find_shortest_chain(importer=source, imported=name))
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Say how each foreign package is reached."""
        for chain in check.metadata["chains"]:
            output.print_error(" -> ".join(chain))
