"""What makes it a workbook: checked exercises, a ledger, a doctor, figures, widgets."""
