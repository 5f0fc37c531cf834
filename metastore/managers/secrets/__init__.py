"""Secret properties: encrypt them before a call becomes a change, reveal them, rotate keys, redact history."""
