//! Glue of chapter tool.
