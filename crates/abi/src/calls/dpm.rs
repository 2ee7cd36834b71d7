//! Glue of chapter dpm.
