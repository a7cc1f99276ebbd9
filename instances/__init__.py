"""Instance generator, readers of the field's file formats, and the instance library."""
