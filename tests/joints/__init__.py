"""The judge of the joints: ``python -m tests.joints`` runs all features at once, and judges every answer."""
