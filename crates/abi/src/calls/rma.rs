//! Glue of chapter rma.
