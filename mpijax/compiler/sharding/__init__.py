"""The partitioner: decides which shard of each array a rank has, and which messages ranks exchange."""
