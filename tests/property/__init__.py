"""Properties, checked by hypothesis against the memory model."""
