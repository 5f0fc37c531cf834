"""The async API: the sync store, whose waits give the event loop to other tasks."""
