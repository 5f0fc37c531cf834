"""An oracle of rights, written from docs/governance.md alone, and random worlds whose calls are compared with it."""
