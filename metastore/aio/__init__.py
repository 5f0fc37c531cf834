"""The async API: the sync store, whose waits let other tasks of the event loop run."""
