"""The partitioner: which part of an array a rank has, and what ranks exchange."""
