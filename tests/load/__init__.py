"""The load test as proof: every scenario, and what is done to clients, connections and servers meanwhile."""
