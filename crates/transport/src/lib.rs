//! One trait for every wire, and one folder a wire.
/// Why a transport could not be set up or used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// What was tried.
        attempted: String,
        /// What the system said.
        cause: std::io::Error,
        /// What to set.
        advice: &'static str,
    },
}
