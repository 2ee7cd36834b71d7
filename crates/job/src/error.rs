//! Why a rank could not find its job.

/// Why a rank could not find its job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The launcher's traces are there, but it cannot be reached.
    #[error("{0}")]
    Launcher(String),
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// The step that failed.
        attempted: String,
        /// The system's error.
        cause: std::io::Error,
        /// Advice to the user.
        advice: &'static str,
    },
}
