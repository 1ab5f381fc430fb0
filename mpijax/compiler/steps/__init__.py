"""From the graph to the plan: instructions in their order, and memory for every value."""
