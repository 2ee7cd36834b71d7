//! Glue of chapter part.
