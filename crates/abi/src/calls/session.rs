//! Glue of chapter session.
