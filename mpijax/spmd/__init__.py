"""Programs over many ranks: meshes, partition specifications, shard_map."""
