"""The machine room: devices and links with their figures, clusters as graphs."""
