"""The programs, one file a topic. A name reads topic/what it does."""
