"""`processes()`: ranks that are processes on this machine."""
