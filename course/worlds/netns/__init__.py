"""`hosts()`: ranks on an Ethernet cluster in a box."""
