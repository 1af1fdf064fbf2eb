"""Output of commands: tables, pages, columns, documents, differences, progress."""
