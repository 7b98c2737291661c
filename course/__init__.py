"""From one gradient to ten billion parameters: the distributed programs behind the workbook."""

__version__ = "0.1.0"
