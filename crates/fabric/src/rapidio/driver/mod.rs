//! The driver of a RapidIO controller, in the paper's levels.
//!
//! - [`lower`]: the lower level. Nothing else touches the card.
//! - [`physical`]: the node's physical memory.

pub mod lower;
pub mod physical;
