//! Glue of chapter io.
